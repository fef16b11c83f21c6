-- Rows that cannot be read, or whose failure could not be stored: not due until an operator releases them.
CREATE TABLE set_aside (item INTEGER PRIMARY KEY, at INTEGER NOT NULL, reason TEXT NOT NULL);
