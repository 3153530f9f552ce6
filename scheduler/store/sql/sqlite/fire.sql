-- name: due_on_time
-- Jobs that are due and not very late, earliest first. `due_at` is only set where the job may fire.
SELECT * FROM jobs
WHERE due_at IS NOT NULL
  AND due_at <= :now
  AND due_at >= :late_before
  AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
ORDER BY due_at
LIMIT :limit;

-- name: due_late
-- Jobs that are due since long, earliest first.
SELECT * FROM jobs
WHERE due_at IS NOT NULL
  AND due_at < :late_before
  AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
ORDER BY due_at
LIMIT :limit;

-- name: move_job
-- FIRE: the job moves to its next slot, if it is still exactly as it was planned from.
UPDATE jobs
SET next_fire_at = :next_fire_at,
    due_at       = :due_at,
    last_fire_at = :last_fire_at
WHERE id = :id
  AND status = 'active'
  AND enabled = 1
  AND removed_at IS NULL
  AND next_fire_at = :seen_fire_at
  AND revision = :seen_revision
  AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
RETURNING *;

-- name: set_next_fire
-- The next slot of a job that may fire, where its schedule has one.
UPDATE jobs
SET next_fire_at = :next_fire_at,
    due_at       = :due_at
WHERE id = :id
  AND status = 'active'
  AND enabled = 1
  AND removed_at IS NULL
  AND revision = :seen_revision;

-- name: rearm_job
-- The job's fire times start a new clock generation, and its next slot follows the clock as it is now.
UPDATE jobs
SET generation   = :generation,
    next_fire_at = :next_fire_at,
    due_at       = :due_at
WHERE id = :id
  AND status = 'active'
  AND enabled = 1
  AND removed_at IS NULL
  AND revision = :seen_revision;

-- name: armed_jobs
-- Jobs that have a next slot, in slices.
SELECT * FROM jobs WHERE due_at IS NOT NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: occupancy
-- Live, recovering and queued runs of a job; scheduled ones of this incarnation for `max_runs`.
SELECT count(*) FILTER (WHERE state <> 'queued')                       AS live,
       count(*) FILTER (WHERE state = 'recovering')                    AS recovering,
       count(*) FILTER (WHERE state = 'queued')                        AS queued,
       count(*) FILTER (
           WHERE trigger IN ('schedule', 'catch_up')
             AND job_counted = 0
             AND added_revision = (SELECT added_revision FROM jobs WHERE id = :job)
       )                                                               AS scheduled
FROM runs
WHERE job = :job
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held');

-- name: unfinished_runs
-- Live and queued runs of a job, oldest first.
SELECT * FROM runs
WHERE job = :job
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
ORDER BY seq;

-- name: claimed_total
-- Claims in force in the whole store.
SELECT count(*) FROM runs WHERE state IN ('running', 'recovering');

-- name: claimed_of_job
-- Claims in force of one job.
SELECT count(*)
FROM runs
WHERE job = :job
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
  AND state IN ('running', 'recovering');

-- name: claimed_in_group
-- Claims in force in one group.
SELECT count(*)
FROM runs JOIN jobs ON jobs.id = runs.job
WHERE runs.state IN ('running', 'recovering')
  AND jobs.group_name = :group_name;

-- name: insert_run
-- A new run, claimed at once or queued. A fire time that already made a run makes no other (I1).
INSERT INTO runs (
    id, job, trigger, state, fire_time, generation, args, under_pause, solo, added_revision,
    definition_revision, claim, owner, lease_until, queued_at, claimed_at, started_at, progress_at
)
VALUES (
    :id, :job, :trigger, :state, :fire_time, :generation, :args, :under_pause, :solo, :added_revision,
    :definition_revision, :claim, :owner, :lease_until, :queued_at, :claimed_at, :claimed_at, :claimed_at
)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: insert_attempt
-- The execution that a claim stands for.
INSERT INTO attempts (run, claim, attempt, owner, started_at)
VALUES (:run, :claim, :attempt, :owner, :now);

-- name: newest_run
-- The newest row of a job, whatever it is.
SELECT * FROM runs WHERE job = :job ORDER BY seq DESC LIMIT 1;

-- name: insert_skip
-- Fire times that did not run, in one row.
INSERT INTO runs (
    id, job, trigger, state, reason, message, fire_time, fire_time_last, count, generation, solo,
    added_revision, queued_at, finished_at
)
VALUES (
    :id, :job, 'schedule', 'skipped', :reason, :message, :first, :last, :count, :generation, 0,
    :added_revision, :now, :now
);

-- name: extend_skip
-- The newest row of the job is a skip of the same reason: it stands for these fire times too.
UPDATE runs
SET fire_time_last = :last,
    count          = count + :count,
    message        = :message,
    finished_at    = :now
WHERE seq = :seq
  AND state = 'skipped'
  AND reason = :reason
  AND generation = :generation;

-- name: claim_candidates
-- Runs that may start now: priority, then the older slot; a waiting run stands back only for runs in force.
SELECT runs.*
FROM runs JOIN jobs ON jobs.id = runs.job
WHERE (runs.state = 'queued' OR (runs.state = 'waiting' AND runs.ready_at <= :now))
  AND runs.wish = 'run'
  AND jobs.removed_at IS NULL
  AND ((jobs.status = 'active' AND (jobs.enabled = 1 OR runs.trigger = 'manual'))
       OR (runs.under_pause = 1 AND jobs.pause_reason IS NOT 'budget'))
  AND jobs.max_running > (SELECT count(*) FROM runs AS other
                          WHERE other.job = runs.job
                            AND other.state IN ('queued', 'running', 'recovering', 'waiting', 'held')
                            AND (other.state IN ('running', 'recovering')
                                 OR (other.state <> 'queued' AND runs.state = 'queued')))
  AND (jobs.group_name IS NULL OR jobs.group_name NOT IN (SELECT value FROM json_each(:full_groups)))
  AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
ORDER BY jobs.priority DESC, coalesce(runs.fire_time, runs.queued_at), runs.seq
LIMIT :limit;

-- name: claim_run
-- A claim: the run is running under a new fencing token, if it still is as it was looked at.
UPDATE runs
SET state               = 'running',
    reason              = NULL,
    message             = NULL,
    ready_at            = NULL,
    claim               = claim + 1,
    owner               = :owner,
    lease_until         = :lease_until,
    claimed_at          = :now,
    started_at          = coalesce(started_at, :now),
    progress_at         = :now,
    definition_revision = :definition_revision,
    solo                = CASE WHEN state = 'queued' THEN :solo ELSE solo END,
    serial              = :serial
WHERE id = :id
  AND state = :seen_state
  AND claim = :seen_claim
  AND wish = 'run';

-- name: serial_run_in_force
-- Whether a run that is restarted serially is live.
SELECT 1 FROM runs WHERE serial = 1 AND state IN ('running', 'recovering') LIMIT 1;

-- name: expire_run
-- A queued fire time that waited longer than its window is told as skipped.
UPDATE runs
SET state       = 'skipped',
    reason      = 'expired',
    message     = :message,
    finished_at = :now
WHERE id = :id
  AND state = 'queued'
  AND claim = :seen_claim;

-- name: next_wake
-- The earliest moment after :after at which something could act by itself.
SELECT min(moment) FROM (
    SELECT min(due_at) AS moment FROM jobs
    WHERE due_at > :after
      AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
    UNION ALL
    SELECT min(runs.ready_at)
    FROM runs JOIN jobs ON jobs.id = runs.job
    WHERE runs.state = 'waiting'
      AND runs.ready_at > :after
      AND runs.wish = 'run'
      AND jobs.removed_at IS NULL
      AND (jobs.status = 'active' OR runs.under_pause = 1)
      AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
    UNION ALL
    SELECT min(pause_until) FROM jobs WHERE pause_until > :after AND removed_at IS NULL
    UNION ALL
    SELECT until FROM global_pauses WHERE lifted_at IS NULL AND until > :after
);

-- name: global_pause_open
-- Whether all jobs are paused.
SELECT 1 FROM global_pauses WHERE lifted_at IS NULL;
