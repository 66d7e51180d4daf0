-- Requests without valid credentials have a limit of their own: passing = 2. SQLite cannot change a CHECK, so the table is copied.
CREATE TABLE audit_pools (
    number  INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    passing INTEGER NOT NULL CHECK (passing IN (0, 1, 2)),
    body    BLOB NOT NULL
) STRICT;
INSERT INTO audit_pools (number, at, passing, body) SELECT number, at, passing, body FROM audit;
DROP TABLE audit;
ALTER TABLE audit_pools RENAME TO audit;
CREATE INDEX audit_by_kind ON audit (passing, number);
