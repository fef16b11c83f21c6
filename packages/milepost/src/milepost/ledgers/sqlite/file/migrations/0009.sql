-- A live row is in one of two indexes: item_held while a worker has it, else item_due. So a lease that has run out is found without
-- passing the rows that wait for a worker, and a claim moves a row out of the long index into a short one.
DROP INDEX item_due;
CREATE INDEX item_due ON item (place, due_at, status) WHERE due_at IS NOT NULL AND status <> 2;
CREATE INDEX item_held ON item (place, due_at) WHERE status = 2;
-- What the resender looks for beside leases: few rows have an overdue mark, or were handed over to a partner.
CREATE INDEX item_overdue ON item (place, overdue_at) WHERE overdue_at IS NOT NULL;
CREATE INDEX item_handed_over ON item (place, due_at) WHERE flags & 4;
