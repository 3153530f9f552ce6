-- Schema version 1. Instants and durations are integer microseconds; instants are UTC since 1970.
-- The author of each column (I16): O operator, E engine, A attempt, S shared (conditional on what was seen).

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per process start; identity as raw /proc facts, so that a pid is never mistaken for another's.
CREATE TABLE owners (
    id          TEXT    NOT NULL PRIMARY KEY,
    machine_id  TEXT    NOT NULL,
    boot_id     TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    stopped_at  INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id                  TEXT    NOT NULL PRIMARY KEY,
    definition_revision INTEGER NOT NULL,                        -- O the ETag
    added_revision      INTEGER NOT NULL,                        -- O tells a re-added job from the one before
    revision            INTEGER NOT NULL,                        -- O moves with every operator verb
    origin              TEXT    NOT NULL CHECK (origin IN ('file', 'api')),   -- O
    origin_file         TEXT,                                    -- O
    enabled             INTEGER NOT NULL CHECK (enabled IN (0, 1)),           -- O the file's word
    removed_at          INTEGER,                                 -- O tombstone
    group_name          TEXT,                                    -- O copied from the definition, for limits
    max_running         INTEGER NOT NULL DEFAULT 1,              -- O the same
    priority            INTEGER NOT NULL DEFAULT 0,              -- O the same
    tells               INTEGER NOT NULL DEFAULT 0,              -- O the same: somebody wants to hear of it
    status              TEXT    NOT NULL CHECK (status IN ('active', 'paused', 'completed', 'failed')),  -- S
    pause_reason        TEXT CHECK (pause_reason IN ('operator', 'crashes', 'budget')),                  -- O
    pause_mode          TEXT CHECK (pause_mode IN ('drain', 'item', 'freeze', 'cancel')),                -- O
    pause_by            TEXT,                                    -- O
    pause_note          TEXT,                                    -- O
    pause_since         INTEGER,                                 -- O
    pause_until         INTEGER,                                 -- O
    held_from           INTEGER,                                 -- O first slot that a pause or disabling held back
    next_fire_at        INTEGER,                                 -- S
    due_at              INTEGER,                                 -- S next_fire_at + jitter
    failures            INTEGER NOT NULL DEFAULT 0,              -- S consecutive
    crashes             INTEGER NOT NULL DEFAULT 0,              -- S consecutive
    last_fire_at        INTEGER,                                 -- E
    generation          INTEGER NOT NULL DEFAULT 0,              -- E clock generation of its fire times
    fires_done          INTEGER NOT NULL DEFAULT 0,              -- E scheduled runs that ended
    problem_code        TEXT,                                    -- E
    problem_message     TEXT,                                    -- E
    CHECK ((status = 'paused') = (pause_reason IS NOT NULL)),
    CHECK ((next_fire_at IS NULL) = (due_at IS NULL)),
    CHECK (next_fire_at IS NULL OR (status = 'active' AND enabled = 1 AND removed_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_pause_until ON jobs (pause_until) WHERE pause_until IS NOT NULL;
CREATE INDEX jobs_group ON jobs (group_name) WHERE group_name IS NOT NULL;
-- A page of jobs by status finds its rows without reading the others.
CREATE INDEX jobs_status ON jobs (status) WHERE removed_at IS NULL;
-- Looks that want few jobs find them among very many: at a start, at a reload, every half minute.
CREATE INDEX jobs_of_files ON jobs (id) WHERE origin = 'file' AND removed_at IS NULL;
CREATE INDEX jobs_telling ON jobs (id) WHERE tells = 1 AND removed_at IS NULL;
CREATE INDEX jobs_broken ON jobs (id) WHERE problem_code IS NOT NULL AND removed_at IS NULL;
CREATE INDEX jobs_removed ON jobs (removed_at) WHERE removed_at IS NOT NULL AND pause_reason IS NULL;
CREATE INDEX jobs_crashed ON jobs (id) WHERE crashes > 0;

-- How many jobs there are, by status, tombstones aside: kept by the triggers below, in the transaction of each
-- change, so that nobody counts a million rows for a number. Only tombstones are ever deleted.
CREATE TABLE job_counts (
    status TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_counted_in AFTER INSERT ON jobs WHEN new.removed_at IS NULL
BEGIN
    INSERT INTO job_counts (status, number) VALUES (new.status, 1)
    ON CONFLICT (status) DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER jobs_counted_again AFTER UPDATE OF status, removed_at ON jobs
WHEN old.status <> new.status OR (old.removed_at IS NULL) <> (new.removed_at IS NULL)
BEGIN
    UPDATE job_counts SET number = number - 1 WHERE status = old.status AND old.removed_at IS NULL;
    INSERT INTO job_counts (status, number) SELECT new.status, 1 WHERE new.removed_at IS NULL
    ON CONFLICT (status) DO UPDATE SET number = number + 1;
END;

-- The definition of each job, tombstones too, apart from the row that every fire writes anew. A rowid table:
-- one without keeps a text of more than 1,000 bytes on pages of its own.
CREATE TABLE definitions (
    id         TEXT NOT NULL PRIMARY KEY,
    definition TEXT NOT NULL                                     -- O canonical JSON
) STRICT;

CREATE TRIGGER definitions_gone AFTER DELETE ON jobs
BEGIN
    DELETE FROM definitions WHERE id = old.id;
END;

CREATE TABLE runs (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
    id                  TEXT    NOT NULL UNIQUE,
    job                 TEXT    NOT NULL,
    trigger             TEXT    NOT NULL CHECK (trigger IN ('schedule', 'manual', 'catch_up', 'retry', 'backfill')),
    state               TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'recovering', 'waiting', 'held',
                            'succeeded', 'partial', 'failed', 'cancelled', 'crashed', 'interrupted', 'skipped')),  -- S
    reason              TEXT,                                    -- S
    message             TEXT,                                    -- S
    ready_at            INTEGER,                                 -- S
    fire_time           INTEGER,                                 -- E
    fire_time_last      INTEGER,                                 -- E last slot of a skip row
    count               INTEGER NOT NULL DEFAULT 1,              -- E fire times a skip row stands for
    generation          INTEGER NOT NULL DEFAULT 0,              -- E
    args                TEXT,                                    -- O of a manual start
    under_pause         INTEGER NOT NULL DEFAULT 0,              -- O a manual start ignores its job's pause
    wish                TEXT    NOT NULL DEFAULT 'run' CHECK (wish IN ('run', 'hold', 'freeze', 'cancel')),  -- O
    solo                INTEGER NOT NULL,                        -- E the job allows one live run
    priority            INTEGER NOT NULL DEFAULT 0,              -- O of its job, for the queue
    group_name          TEXT,                                    -- O the same
    added_revision      INTEGER NOT NULL,                        -- E which incarnation of the job
    definition_revision INTEGER,                                 -- E copied at the claim
    attempt             INTEGER NOT NULL DEFAULT 1,              -- E 1 + tries charged
    claim               INTEGER NOT NULL DEFAULT 0,              -- E fencing token
    owner               TEXT,                                    -- E
    lease_until         INTEGER,                                 -- E
    serial              INTEGER NOT NULL DEFAULT 0,              -- E restarted one at a time after repeated deaths
    queued_at           INTEGER,                                 -- E
    claimed_at          INTEGER,                                 -- E
    started_at          INTEGER,                                 -- E first claim
    job_counted         INTEGER NOT NULL DEFAULT 0,              -- E counted in fires_done
    finished_at         INTEGER,                                 -- A
    progress_at         INTEGER,                                 -- A last sign of life of the work
    pid                 INTEGER,                                 -- A
    pid_ticks           INTEGER,                                 -- A
    exit_code           INTEGER,                                 -- A
    signal              INTEGER,                                 -- A
    result              TEXT,                                    -- A JSON
    cost                REAL,                                    -- A
    done                INTEGER,                                 -- A
    total               INTEGER,                                 -- A
    failed              INTEGER,                                 -- A
    unknown             INTEGER,                                 -- A
    progress_message    TEXT,                                    -- A
    items_total         INTEGER,                                 -- A items of a batch; NULL until the list is whole
    items_chosen        INTEGER NOT NULL DEFAULT 0,              -- O which items are to be begun (model.items.Chosen)
    items_in_a_row      INTEGER NOT NULL DEFAULT 0,              -- A items failed since the last one done
    spent               INTEGER NOT NULL DEFAULT 0,              -- A cost of the items in millionths
    CHECK (state NOT IN ('running', 'recovering') OR (owner IS NOT NULL AND claim > 0 AND lease_until IS NOT NULL)),
    CHECK (state <> 'waiting' OR ready_at IS NOT NULL)
) STRICT;

-- I1: a fire time makes at most one run. Manual runs have no fire time; skips stand outside.
CREATE UNIQUE INDEX runs_fire ON runs (job, fire_time, generation) WHERE fire_time IS NOT NULL AND state <> 'skipped';
-- I2: the backstop; the rule itself is judged by counting rows.
CREATE UNIQUE INDEX runs_solo ON runs (job) WHERE solo = 1 AND state IN ('running', 'recovering', 'waiting', 'held');
CREATE INDEX runs_unfinished ON runs (job, state) WHERE state IN ('queued', 'running', 'recovering', 'waiting', 'held');
-- What may be claimed, in its order: of a long queue only the front is read. Full groups and waits are passed over
-- in the index alone.
CREATE INDEX runs_queue ON runs (priority DESC, coalesce(fire_time, queued_at), seq, group_name, state, ready_at)
WHERE state IN ('queued', 'waiting');
CREATE INDEX runs_waiting ON runs (ready_at) WHERE state = 'waiting';
CREATE INDEX runs_history ON runs (job, seq);
-- Which skip stands for a fire time.
CREATE INDEX runs_skips ON runs (job, fire_time) WHERE state = 'skipped';
-- Batch runs that ended with items nobody knows the outcome of, or that were not begun.
CREATE INDEX runs_unsettled ON runs (job, seq) WHERE items_total > done + failed;
-- A page of runs by state finds its rows without reading the others, and so do claims in force.
CREATE INDEX runs_state ON runs (state, seq);

-- An edit of a job moves its runs in the queue, too.
CREATE TRIGGER jobs_ranked AFTER UPDATE OF priority, group_name ON jobs
WHEN old.priority <> new.priority OR old.group_name IS NOT new.group_name
BEGIN
    UPDATE runs
    SET priority   = new.priority,
        group_name = new.group_name
    WHERE job = new.id
      AND state IN ('queued', 'running', 'recovering', 'waiting', 'held');
END;

-- One row per claim.
CREATE TABLE attempts (
    run         TEXT    NOT NULL,
    claim       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,
    state       TEXT,
    reason      TEXT,
    message     TEXT,
    exit_code   INTEGER,
    signal      INTEGER,
    pid         INTEGER,
    PRIMARY KEY (run, claim)
) STRICT, WITHOUT ROWID;

-- Units of batch runs; all columns are the attempt's, but for a settlement by an operator (state, error, tries).
CREATE TABLE items (
    run         TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed', 'unknown', 'skipped')),
    claim       INTEGER,                      -- of the run, at the begin
    nonce       TEXT,                         -- names the begin; an outcome is written under it alone
    effect_key  TEXT,                         -- what the paid service is given: the same for every attempt
    attempts    INTEGER NOT NULL DEFAULT 0,   -- begins
    tries       INTEGER NOT NULL DEFAULT 0,   -- failures charged to the item's retry
    ready_at    INTEGER NOT NULL DEFAULT 0,   -- of a pending item that was begun before or chosen: when it may run
    error       TEXT,
    result      TEXT,
    spent       INTEGER NOT NULL DEFAULT 0,   -- millionths, the reserve of an open begin included
    reserved    INTEGER NOT NULL DEFAULT 0,   -- how much of it is an estimate
    started_at  INTEGER,
    finished_at INTEGER,
    PRIMARY KEY (run, seq),
    UNIQUE (run, key),
    CHECK (state NOT IN ('running', 'unknown') OR (nonce IS NOT NULL AND claim IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX items_state ON items (run, state, ready_at);
CREATE INDEX items_running ON items (run) WHERE state = 'running';

-- What the items of a job have cost on a day of its zone, in millionths; changed with the items it sums up.
CREATE TABLE spend (
    job    TEXT    NOT NULL,
    day    TEXT    NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (job, day)
) STRICT, WITHOUT ROWID;

-- The pause of all jobs, with its span; it rewrites no job.
CREATE TABLE global_pauses (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    mode      TEXT    NOT NULL CHECK (mode IN ('drain', 'item', 'freeze', 'cancel')),
    by        TEXT    NOT NULL,
    note      TEXT    NOT NULL,
    since     INTEGER NOT NULL,
    until     INTEGER,
    lifted_at INTEGER
) STRICT;

CREATE UNIQUE INDEX global_pauses_open ON global_pauses ((lifted_at IS NULL)) WHERE lifted_at IS NULL;

-- Every mutation: who, when, what.
CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    verb    TEXT    NOT NULL,
    job     TEXT,
    run     TEXT,
    uid     INTEGER NOT NULL,
    gid     INTEGER NOT NULL,
    pid     INTEGER NOT NULL,
    command TEXT    NOT NULL,
    detail  TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_job ON audit (job, seq);

-- What changed by an operator's hand, in order: a second daemon polls it.
CREATE TABLE changes (
    seq  INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    id   TEXT NOT NULL
) STRICT;

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

-- Runs that have left the history, until what belongs to them (output on disk, items) has gone too.
CREATE TABLE pruned (
    run TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
