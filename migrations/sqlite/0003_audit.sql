-- What was asked for, by whom, and what became of it. Bodies are JSON documents that only `api/src/audit.rs` reads and writes.

-- One row for each request that would change something: at = Unix seconds; passing = 1 for what changed nothing.
CREATE TABLE audit (
    number  INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    passing INTEGER NOT NULL CHECK (passing IN (0, 1)),
    body    BLOB NOT NULL
) STRICT;

-- How many there are of each kind, and which is the oldest to be kept, is asked with most writes.
CREATE INDEX audit_by_kind ON audit (passing, number);
