-- What people ask for: one kind of error, one list, and what has been at its stage for long. Finished rows are in the second alone.
CREATE INDEX item_error ON item (error_group) WHERE error_group IS NOT NULL;
CREATE INDEX item_list ON item (list_id) WHERE list_id IS NOT NULL;
CREATE INDEX item_age ON item (place, entered_at) WHERE due_at IS NOT NULL;
