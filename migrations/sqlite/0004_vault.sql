-- Keys, tokens and roles: in no watch and no history. Bodies are documents of `api`, each with a version of its own.

CREATE TABLE vault (
    key     TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    body    BLOB NOT NULL
) STRICT;

-- One row: the version that was given out last, so that none is given out twice.
CREATE TABLE vault_versions (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO vault_versions (id, last) VALUES (1, 0);
