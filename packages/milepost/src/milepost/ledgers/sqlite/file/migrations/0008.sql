-- Which life of its key an item is in, where the route forgets keys: the moment at which it was accepted.
ALTER TABLE item ADD COLUMN life INTEGER NOT NULL DEFAULT 0;
ALTER TABLE seal ADD COLUMN life INTEGER NOT NULL DEFAULT 0;
