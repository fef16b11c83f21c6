PRAGMA application_id = 1297108819;
PRAGMA user_version = 13;
PRAGMA page_size = 8192;
CREATE VIEW items AS
SELECT r.name AS route, i.key, s.name AS stage, p.lane, t.name AS status, i.attempts, i.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.due_at / 1000.0, 'unixepoch') AS due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.updated_at / 1000.0, 'unixepoch') AS updated_at,
       i.holder, i.error_group, i.correlation_id, i.id
FROM item i JOIN place p ON p.id = i.place JOIN stage s ON s.id = p.stage JOIN route r ON r.id = i.route
JOIN status t ON t.id = i.status;
CREATE TABLE "content" (
    kind INTEGER NOT NULL CHECK (kind IN (0, 1, 2)),    -- 0 input, 1 payload of a stage, 2 result of a stage
    item INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, item, stage)
) WITHOUT ROWID;
CREATE TABLE counter (
    stage INTEGER NOT NULL, status INTEGER NOT NULL, hour INTEGER NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (stage, status, hour)
) WITHOUT ROWID;
CREATE TABLE departed (
    item INTEGER PRIMARY KEY,
    route INTEGER NOT NULL,
    key TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    last_seq INTEGER NOT NULL  -- the place of its last line
);
CREATE TABLE document (
    kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE error_group (
    stage INTEGER NOT NULL, name TEXT NOT NULL, category TEXT NOT NULL, sample TEXT NOT NULL,
    present INTEGER NOT NULL, total INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,
    PRIMARY KEY (stage, name)
) WITHOUT ROWID;
CREATE TABLE history (seq INTEGER PRIMARY KEY, item INTEGER NOT NULL, previous BLOB NOT NULL, body BLOB NOT NULL);
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
, life INTEGER NOT NULL DEFAULT 0, key_field TEXT);
CREATE TABLE offer (seq INTEGER PRIMARY KEY, same INTEGER, body BLOB);
CREATE TABLE place (id INTEGER PRIMARY KEY, stage INTEGER NOT NULL, lane TEXT NOT NULL, UNIQUE (stage, lane));
CREATE TABLE rate (scope TEXT PRIMARY KEY, tokens REAL NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE route (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE seal (
    route INTEGER NOT NULL, key TEXT NOT NULL, status INTEGER NOT NULL, input_digest BLOB NOT NULL,
    ended_at INTEGER NOT NULL, head BLOB NOT NULL, list_id TEXT, stage INTEGER NOT NULL, content_digest BLOB, life INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (route, key)
) WITHOUT ROWID;
CREATE TABLE set_aside (item INTEGER PRIMARY KEY, at INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE stage (id INTEGER PRIMARY KEY, route INTEGER NOT NULL, name TEXT NOT NULL, UNIQUE (route, name));
CREATE TABLE status (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE INDEX departed_key ON departed (route, key);
CREATE INDEX departed_told ON departed (route, last_seq);
CREATE INDEX history_item ON history (item);
CREATE INDEX item_age ON item (place, entered_at) WHERE due_at IS NOT NULL;
CREATE INDEX item_due ON item (place, due_at, status) WHERE due_at IS NOT NULL AND status <> 2;
CREATE INDEX item_error ON item (error_group) WHERE error_group IS NOT NULL;
CREATE INDEX item_failed ON item (place, status) WHERE status > 5;
CREATE INDEX item_handed_over ON item (place, due_at) WHERE flags & 4;
CREATE INDEX item_held ON item (place, due_at) WHERE status = 2;
CREATE UNIQUE INDEX item_key ON item (route, key);
CREATE INDEX item_list ON item (list_id) WHERE list_id IS NOT NULL;
CREATE INDEX item_overdue ON item (place, overdue_at) WHERE overdue_at IS NOT NULL;
CREATE INDEX item_second_part ON item (route, substr(key, instr(key, '#') + 1)) WHERE instr(key, '#') > 0;
CREATE INDEX seal_failed ON seal (route, key) WHERE status IN (6, 7);
