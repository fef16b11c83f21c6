-- Names are kept once and meant by number, so that renaming a stage is one row and indexes stay small.
CREATE TABLE route (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE stage (id INTEGER PRIMARY KEY, route INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE (route, name));
CREATE TABLE place (id INTEGER PRIMARY KEY, stage INTEGER NOT NULL, lane TEXT NOT NULL, UNIQUE (stage, lane));
CREATE TABLE status (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO status (id, name) VALUES
    (0, 'PENDING'), (1, 'QUEUED'), (2, 'PROCESSING'), (3, 'WAITING'), (4, 'RETRY_SCHEDULED'),
    (5, 'COMPLETED'), (6, 'MAX_RETRIES_EXCEEDED'), (7, 'REJECTED'), (8, 'CANCELLED');

-- The hot row: only what the rules read and write. Content sits apart.
CREATE TABLE item (
    id INTEGER PRIMARY KEY,
    route INTEGER NOT NULL,
    key TEXT NOT NULL,
    place INTEGER NOT NULL,
    status INTEGER NOT NULL,
    due_at INTEGER,
    look_at INTEGER,          -- only where it differs from due_at
    overdue_at INTEGER,
    version INTEGER NOT NULL,
    head BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    entered_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    total_attempts INTEGER NOT NULL DEFAULT 0,
    looks INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    round INTEGER NOT NULL DEFAULT 1,
    pass_no INTEGER NOT NULL DEFAULT 1,
    flags INTEGER NOT NULL DEFAULT 0,
    lease TEXT,
    holder TEXT,
    claimed_at INTEGER,
    correlation_id TEXT NOT NULL,
    input_digest BLOB NOT NULL,
    list_id TEXT,
    error_group TEXT,
    rest BLOB                 -- note, error, kept and undecided outcomes, as JSON; mostly absent
);
CREATE UNIQUE INDEX item_key ON item (route, key);
-- The one clock: claiming, retrying, rescuing and resending all read it. Finished rows are not in it.
CREATE INDEX item_due ON item (place, due_at, status) WHERE due_at IS NOT NULL;
-- What people ask for most: items that failed or were cancelled.
CREATE INDEX item_failed ON item (place, status) WHERE status > 5;

CREATE TABLE content (
    item INTEGER NOT NULL,
    kind INTEGER NOT NULL,    -- 0 input, 1 payload of a stage, 2 result of a stage
    stage INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (item, kind, stage)
) WITHOUT ROWID;

-- seq is the order in which the whole ledger was written: the subscribers' cursor.
CREATE TABLE history (seq INTEGER PRIMARY KEY, item INTEGER NOT NULL, previous BLOB NOT NULL, body BLOB NOT NULL);
CREATE INDEX history_item ON history (item);

CREATE TABLE counter (
    stage INTEGER NOT NULL, status INTEGER NOT NULL, hour INTEGER NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (stage, status, hour)
) WITHOUT ROWID;
CREATE TABLE error_group (
    stage INTEGER NOT NULL, name TEXT NOT NULL, category TEXT NOT NULL, sample TEXT NOT NULL,
    present INTEGER NOT NULL, total INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,
    PRIMARY KEY (stage, name)
) WITHOUT ROWID;

CREATE TABLE seal (
    route INTEGER NOT NULL, key TEXT NOT NULL, status INTEGER NOT NULL, input_digest BLOB NOT NULL,
    ended_at INTEGER NOT NULL, head BLOB NOT NULL, list_id TEXT, stage INTEGER NOT NULL,
    PRIMARY KEY (route, key)
) WITHOUT ROWID;

CREATE TABLE document (
    kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
-- The moment up to which each scope's rate has been used.
CREATE TABLE rate (scope TEXT PRIMARY KEY, used_until REAL NOT NULL) WITHOUT ROWID;

-- For people with a database browser.
CREATE VIEW items AS
SELECT r.name AS route, i.key, s.name AS stage, p.lane, t.name AS status, i.attempts, i.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.due_at / 1000.0, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.updated_at / 1000.0, 'unixepoch') AS updated_at,
       i.holder, i.error_group, i.correlation_id, i.id
FROM item i JOIN place p ON p.id = i.place JOIN stage s ON s.id = p.stage JOIN route r ON r.id = i.route
JOIN status t ON t.id = i.status;
