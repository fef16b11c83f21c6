-- Items whose rows have left, and whose lines and content stay until nothing waits for these lines.
CREATE TABLE departed (
    item INTEGER PRIMARY KEY,
    route INTEGER NOT NULL,
    key TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    last_seq INTEGER NOT NULL  -- the place of its last line
);
CREATE INDEX departed_key ON departed (route, key);
CREATE INDEX departed_told ON departed (route, last_seq);
