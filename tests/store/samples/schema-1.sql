PRAGMA auto_vacuum = 2;
PRAGMA application_id = 1399023684;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
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
INSERT INTO "attempts" VALUES('01a2d11f-ec60-795e-ab55-2088cd266064',1,1,'owner-1',1798804860000000,1798804860000000,'succeeded',NULL,NULL,0,NULL,NULL);
INSERT INTO "attempts" VALUES('01a2d120-d6c0-70d7-86fb-9f40a09f01d9',1,1,'owner-1',1798804920000000,1798804920000000,'failed','exit_code','exit code 1',1,NULL,NULL);
INSERT INTO "attempts" VALUES('01a2d157-c540-70e6-97af-f11eab5681e2',1,1,'owner-1',1798808520000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES('01a2d157-c540-7a34-807a-519c715bed89',1,1,'owner-1',1798808520000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "audit" VALUES(1,1798804800000000,'add','minutely',NULL,1000,1000,4242,'schedctl','{"origin": "file", "file": "jobs.toml"}');
INSERT INTO "audit" VALUES(2,1798804800000000,'add','paused',NULL,1000,1000,4242,'schedctl','{"origin": "file", "file": "jobs.toml"}');
INSERT INTO "audit" VALUES(3,1798804800000000,'add','removed',NULL,1000,1000,4242,'schedctl','{"origin": "file", "file": "jobs.toml"}');
INSERT INTO "audit" VALUES(4,1798804800000000,'add','narrate',NULL,1000,1000,4242,'schedctl','{"origin": "file", "file": "jobs.toml"}');
INSERT INTO "audit" VALUES(5,1798808520000000,'pause','paused',NULL,1000,1000,4242,'schedctl','{"mode": "drain", "reason": "until the audit is over", "until": null}');
INSERT INTO "audit" VALUES(6,1798808520000000,'run','narrate','01a2d157-c540-70e6-97af-f11eab5681e2',1000,1000,4242,'schedctl','{}');
INSERT INTO "audit" VALUES(7,1798808520000000,'remove','removed',NULL,1000,1000,4242,'schedctl','{"origin": "file", "file": null}');
CREATE TABLE changes (
    seq  INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    id   TEXT NOT NULL
) STRICT;
INSERT INTO "changes" VALUES(1,'job','minutely');
INSERT INTO "changes" VALUES(2,'job','paused');
INSERT INTO "changes" VALUES(3,'job','removed');
INSERT INTO "changes" VALUES(4,'job','narrate');
INSERT INTO "changes" VALUES(5,'job','paused');
INSERT INTO "changes" VALUES(6,'run','01a2d157-c540-70e6-97af-f11eab5681e2');
INSERT INTO "changes" VALUES(7,'job','removed');
CREATE TABLE definitions (
    id         TEXT NOT NULL PRIMARY KEY,
    definition TEXT NOT NULL                                     -- O canonical JSON
) STRICT;
INSERT INTO "definitions" VALUES('minutely','{"command":["true"],"every":60,"keep_runs":10,"timezone":"UTC"}');
INSERT INTO "definitions" VALUES('paused','{"command":["true"],"cron":"30 2 * * *","timezone":"UTC"}');
INSERT INTO "definitions" VALUES('removed','{"command":["true"],"manual":true,"timezone":"UTC"}');
INSERT INTO "definitions" VALUES('narrate','{"batch":{"items":["intro","one"]},"command":["true"],"manual":true,"timezone":"UTC"}');
CREATE TABLE global_pauses (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    mode      TEXT    NOT NULL CHECK (mode IN ('drain', 'item', 'freeze', 'cancel')),
    by        TEXT    NOT NULL,
    note      TEXT    NOT NULL,
    since     INTEGER NOT NULL,
    until     INTEGER,
    lifted_at INTEGER
) STRICT;
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
CREATE TABLE job_counts (
    status TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "job_counts" VALUES('active',2);
INSERT INTO "job_counts" VALUES('paused',1);
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
INSERT INTO "jobs" VALUES('minutely',1,1,1,'file','jobs.toml',1,NULL,NULL,1,0,0,'active',NULL,NULL,NULL,NULL,NULL,NULL,NULL,1798808580000000,1798808580000000,1,0,1798808520000000,0,2,NULL,NULL);
INSERT INTO "jobs" VALUES('narrate',4,4,4,'file','jobs.toml',1,NULL,NULL,1,0,0,'active',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,0,0,NULL,NULL);
INSERT INTO "jobs" VALUES('paused',2,2,5,'file','jobs.toml',1,NULL,NULL,1,0,0,'paused','operator','drain','uid:1000','until the audit is over',1798808520000000,NULL,1798857000000000,NULL,NULL,0,0,NULL,0,0,NULL,NULL);
INSERT INTO "jobs" VALUES('removed',6,3,6,'file','jobs.toml',1,1798808520000000,NULL,1,0,0,'active',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,0,0,NULL,NULL);
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('revision',6);
INSERT INTO "meta" VALUES('store_id','308258c4616be549');
INSERT INTO "meta" VALUES('wall_seen',1798804800000000);
CREATE TABLE owners (
    id          TEXT    NOT NULL PRIMARY KEY,
    machine_id  TEXT    NOT NULL,
    boot_id     TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    stopped_at  INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "owners" VALUES('owner-1','machine','boot-1',1,1,1798804800000000,NULL);
CREATE TABLE pruned (
    run TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
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
INSERT INTO "runs" VALUES(1,'01a2d11f-ec60-795e-ab55-2088cd266064','minutely','schedule','succeeded',NULL,NULL,NULL,1798804860000000,NULL,1,0,NULL,0,'run',1,0,NULL,1,1,1,1,'owner-1',1798804920000000,0,1798804860000000,1798804860000000,1798804860000000,1,1798804860000000,1798804860000000,NULL,NULL,0,NULL,'"done"',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0);
INSERT INTO "runs" VALUES(2,'01a2d120-d6c0-70d7-86fb-9f40a09f01d9','minutely','schedule','failed','exit_code','exit code 1',NULL,1798804920000000,NULL,1,0,NULL,0,'run',1,0,NULL,1,1,1,1,'owner-1',1798804980000000,0,1798804920000000,1798804920000000,1798804920000000,1,1798804920000000,1798804920000000,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0);
INSERT INTO "runs" VALUES(3,'01a2d157-c540-7a41-b361-8c65e6fa411e','minutely','schedule','skipped','misfire','found late; catch_up = "latest"',NULL,1798804980000000,1798808460000000,59,0,NULL,0,'run',0,0,NULL,1,NULL,1,0,NULL,NULL,0,1798808520000000,NULL,NULL,0,1798808520000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0);
INSERT INTO "runs" VALUES(4,'01a2d157-c540-7a34-807a-519c715bed89','minutely','schedule','running',NULL,NULL,NULL,1798808520000000,NULL,1,0,NULL,0,'run',1,0,NULL,1,1,1,1,'owner-1',1798808580000000,0,1798808520000000,1798808520000000,1798808520000000,0,NULL,1798808520000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0);
INSERT INTO "runs" VALUES(5,'01a2d157-c540-70e6-97af-f11eab5681e2','narrate','manual','running',NULL,NULL,NULL,NULL,NULL,1,0,NULL,0,'run',1,0,NULL,4,4,1,1,'owner-1',1798808580000000,0,1798808520000000,1798808520000000,1798808520000000,0,NULL,1798808520000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0);
CREATE TABLE spend (
    job    TEXT    NOT NULL,
    day    TEXT    NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (job, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_pause_until ON jobs (pause_until) WHERE pause_until IS NOT NULL;
CREATE INDEX jobs_group ON jobs (group_name) WHERE group_name IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status) WHERE removed_at IS NULL;
CREATE INDEX jobs_of_files ON jobs (id) WHERE origin = 'file' AND removed_at IS NULL;
CREATE INDEX jobs_telling ON jobs (id) WHERE tells = 1 AND removed_at IS NULL;
CREATE INDEX jobs_broken ON jobs (id) WHERE problem_code IS NOT NULL AND removed_at IS NULL;
CREATE INDEX jobs_removed ON jobs (removed_at) WHERE removed_at IS NOT NULL AND pause_reason IS NULL;
CREATE INDEX jobs_crashed ON jobs (id) WHERE crashes > 0;
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
CREATE TRIGGER definitions_gone AFTER DELETE ON jobs
BEGIN
    DELETE FROM definitions WHERE id = old.id;
END;
CREATE UNIQUE INDEX runs_fire ON runs (job, fire_time, generation) WHERE fire_time IS NOT NULL AND state <> 'skipped';
CREATE UNIQUE INDEX runs_solo ON runs (job) WHERE solo = 1 AND state IN ('running', 'recovering', 'waiting', 'held');
CREATE INDEX runs_unfinished ON runs (job, state) WHERE state IN ('queued', 'running', 'recovering', 'waiting', 'held');
CREATE INDEX runs_queue ON runs (priority DESC, coalesce(fire_time, queued_at), seq, group_name, state, ready_at)
WHERE state IN ('queued', 'waiting');
CREATE INDEX runs_waiting ON runs (ready_at) WHERE state = 'waiting';
CREATE INDEX runs_history ON runs (job, seq);
CREATE INDEX runs_skips ON runs (job, fire_time) WHERE state = 'skipped';
CREATE INDEX runs_unsettled ON runs (job, seq) WHERE items_total > done + failed;
CREATE INDEX runs_state ON runs (state, seq);
CREATE TRIGGER jobs_ranked AFTER UPDATE OF priority, group_name ON jobs
WHEN old.priority <> new.priority OR old.group_name IS NOT new.group_name
BEGIN
    UPDATE runs
    SET priority   = new.priority,
        group_name = new.group_name
    WHERE job = new.id
      AND state IN ('queued', 'running', 'recovering', 'waiting', 'held');
END;
CREATE INDEX items_state ON items (run, state, ready_at);
CREATE INDEX items_running ON items (run) WHERE state = 'running';
CREATE UNIQUE INDEX global_pauses_open ON global_pauses ((lifted_at IS NULL)) WHERE lifted_at IS NULL;
CREATE INDEX audit_job ON audit (job, seq);
CREATE INDEX answers_at ON answers (at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',7);
INSERT INTO "sqlite_sequence" VALUES('changes',7);
INSERT INTO "sqlite_sequence" VALUES('runs',5);
COMMIT;
