-- The field of an item's first input if that is {field: key} and nothing else: a list of keys is then recognised without comparing digests.
-- Earlier rows have none, and their digests are compared.
ALTER TABLE item ADD COLUMN key_field TEXT;
