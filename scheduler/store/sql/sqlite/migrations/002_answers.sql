-- Answers to requests that carried a key, written in the transaction of their effect; kept for a day.
CREATE TABLE answers (
    uid     INTEGER NOT NULL,
    key     TEXT    NOT NULL,
    request TEXT    NOT NULL,              -- digest of method, target and body
    at      INTEGER NOT NULL,
    status  INTEGER NOT NULL,
    headers TEXT    NOT NULL,              -- JSON
    body    TEXT    NOT NULL,
    PRIMARY KEY (uid, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX answers_at ON answers (at);

-- Pages of jobs by status or group, and of runs by state, find their rows without reading the others.
CREATE INDEX jobs_status ON jobs (status) WHERE removed_at IS NULL;
CREATE INDEX runs_state ON runs (state, seq);
