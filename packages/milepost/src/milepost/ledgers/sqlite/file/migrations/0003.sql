-- The digest of the input that an item had at its end, where an operator had replaced the first one.
ALTER TABLE seal ADD COLUMN content_digest BLOB;
