-- name: live_run
-- The run's row as it is now.
SELECT * FROM runs WHERE id = :id;

-- name: live_job
-- The job's row as it is now, a tombstone too.
SELECT * FROM jobs WHERE id = :id;

-- name: other_scheduled_runs
-- Other runs of the job's trigger that are on their way; those of the job before a removal are not its own.
SELECT count(*) FROM runs
WHERE job = :job
  AND id <> :id
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
  AND trigger IN ('schedule', 'catch_up')
  AND added_revision = (SELECT added_revision FROM jobs WHERE id = :job);

-- name: finish_run
-- The outcome, if claim and state are still those that the writer named (I3).
UPDATE runs
SET state       = :state,
    reason      = :reason,
    message     = :message,
    ready_at    = :ready_at,
    attempt     = :attempt,
    job_counted = :counted,
    finished_at = :finished_at,
    exit_code   = :exit_code,
    signal      = :signal,
    result      = coalesce(:result, result),
    cost        = coalesce(:cost, cost),
    pid         = NULL,
    pid_ticks   = NULL
WHERE id = :id
  AND claim = :claim
  AND state = :expects
RETURNING *;

-- name: finish_attempt
-- How the claim's execution ended.
UPDATE attempts
SET finished_at = :now,
    state       = :state,
    reason      = :reason,
    message     = :message,
    exit_code   = :exit_code,
    signal      = :signal
WHERE run = :run
  AND claim = :claim
  AND finished_at IS NULL;

-- name: write_counters
-- Failures, crashes and ended runs of the job, if the row is still the one that was read.
UPDATE jobs
SET failures   = :failures,
    crashes    = :crashes,
    fires_done = :fires_done
WHERE id = :id
  AND revision = :seen_revision
  AND added_revision = :added_revision
RETURNING *;

-- name: end_job
-- `completed` or `failed`: wins over a pause (I5).
UPDATE jobs
SET status       = :status,
    pause_reason = NULL,
    pause_mode   = NULL,
    pause_by     = NULL,
    pause_note   = NULL,
    pause_since  = NULL,
    pause_until  = NULL,
    held_from    = NULL,
    next_fire_at = NULL,
    due_at       = NULL
WHERE id = :id
  AND status IN ('active', 'paused')
  AND removed_at IS NULL
  AND revision = :seen_revision;

-- name: add_pause_evidence
-- A job that is already paused keeps who and why; crashes add their own and take the end date away.
UPDATE jobs
SET pause_until = NULL,
    pause_note  = CASE WHEN coalesce(pause_note, '') = '' THEN :note ELSE pause_note || '; ' || :note END
WHERE id = :id
  AND status = 'paused'
  AND revision = :seen_revision;

-- name: set_problem
-- Why the job cannot run, or that it can.
UPDATE jobs SET problem_code = :code, problem_message = :message WHERE id = :id AND removed_at IS NULL;
