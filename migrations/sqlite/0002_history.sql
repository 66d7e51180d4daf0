-- What is kept of writes for people. Bodies are JSON documents that only `store/src/history.rs` reads and writes.

-- Writes up to this revision may be missing from the history: older ones were dropped, or never kept.
ALTER TABLE meta ADD COLUMN history_floor INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET history_floor = head;

-- One row for each write that is kept: at = Unix seconds; head = who asked for it, and the keys of what it changed;
-- body = the objects before and after, last, so that a listing never reads it.
CREATE TABLE history (
    revision  INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    by_server INTEGER NOT NULL CHECK (by_server IN (0, 1)),
    head      BLOB NOT NULL,
    body      BLOB NOT NULL
) STRICT;
