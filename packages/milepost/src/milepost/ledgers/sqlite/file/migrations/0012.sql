-- Contents of one kind lie together: the result of a stage is added beside the results before it, and not between the inputs, whose pages
-- would have to be written again.
CREATE TABLE content_by_kind (
    kind INTEGER NOT NULL CHECK (kind IN (0, 1, 2)),    -- 0 input, 1 payload of a stage, 2 result of a stage
    item INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, item, stage)
) WITHOUT ROWID;
-- One kind after the other, in the order in which they are stored: SQLite need not sort them, which it would do in memory.
INSERT INTO content_by_kind (kind, item, stage, body) SELECT kind, item, stage, body FROM content WHERE kind = 0;
INSERT INTO content_by_kind (kind, item, stage, body) SELECT kind, item, stage, body FROM content WHERE kind = 1;
INSERT INTO content_by_kind (kind, item, stage, body) SELECT kind, item, stage, body FROM content WHERE kind = 2;
-- SQLite would keep what the dropped pages held in memory, so that it could undo the statement. To empty a table it does not.
DELETE FROM content;
DROP TABLE content;
-- Views and triggers that people have added may name this table: without this, SQLite refuses the name while it is missing there.
PRAGMA legacy_alter_table = ON;
ALTER TABLE content_by_kind RENAME TO content;
PRAGMA legacy_alter_table = OFF;
