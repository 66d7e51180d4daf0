-- The state of a cluster. Bodies are JSON documents that only `store/src/record.rs` reads and writes.

-- One row: which life of the store this is, and the revision of its last commit.
CREATE TABLE meta (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    head  INTEGER NOT NULL CHECK (head >= 0)
) STRICT;

-- The last state of every object that exists.
CREATE TABLE objects (
    key  TEXT PRIMARY KEY NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- The last commits, one row each: at = Unix seconds, body = the changes in their order.
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    body     BLOB NOT NULL
) STRICT;

-- What was observed; apart from the objects, and without revisions.
CREATE TABLE statuses (
    key  TEXT PRIMARY KEY NOT NULL,
    body BLOB NOT NULL
) STRICT;
