-- A rate is kept as its tokens at a moment: a debt is told from a clock that was set back. Whatever was used up is forgotten once.
DROP TABLE rate;
CREATE TABLE rate (scope TEXT PRIMARY KEY, tokens REAL NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
