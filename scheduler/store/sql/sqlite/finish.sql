-- name: live_run
-- The run's row as it is now.
SELECT * FROM runs WHERE id = :id;

-- name: live_runs
-- The rows of these runs as they are now; the columns of `rows.RUN_COLUMNS`.
-- A number on its way through JSON keeps 15 digits, unless it is printed with all of them.
SELECT json_group_array(json_array(
    id, seq, job, trigger, state, reason, message, ready_at,
    fire_time, fire_time_last, count, generation, args, under_pause, wish,
    attempt, claim, owner, lease_until, serial,
    queued_at, claimed_at, started_at, finished_at, progress_at, job_counted,
    added_revision, definition_revision, pid, pid_ticks, exit_code, signal, result,
    CASE WHEN cost IS NOT NULL THEN json(printf('%!.17g', cost)) END,
    done, total, failed, unknown, progress_message, items_total, spent
))
FROM runs
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: live_job
-- The job's row as it is now, a tombstone too.
SELECT * FROM jobs JOIN definitions USING (id) WHERE id = :id;

-- name: live_jobs
-- The rows of these jobs as they are now, tombstones too; the columns of `rows.JOB_COLUMNS`.
SELECT json_group_array(json_array(
    id, status, enabled, revision, definition_revision, added_revision, origin, origin_file,
    next_fire_at, due_at, last_fire_at, generation, fires_done, failures, crashes,
    problem_code, problem_message, removed_at, held_from,
    pause_reason, pause_mode, pause_by, pause_note, pause_since, pause_until
))
FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: definitions
-- The definitions of these jobs, each with its revision.
SELECT json_group_array(json_array(id, definition_revision, definition))
FROM jobs JOIN definitions USING (id)
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: other_scheduled_runs
-- Other runs of the job's trigger that are on their way; those of the job before a removal are not its own.
SELECT count(*) FROM runs
WHERE job = :job
  AND id <> :id
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
  AND trigger IN ('schedule', 'catch_up')
  AND added_revision = (SELECT added_revision FROM jobs WHERE id = :job);

-- name: finish_run
-- The outcomes, each if claim and state are still those that its writer named (I3).
-- The plus keeps SQLite from looking through all runs of that state.
UPDATE runs
SET state       = ended.state,
    reason      = ended.reason,
    message     = ended.message,
    ready_at    = ended.ready_at,
    attempt     = ended.attempt,
    job_counted = ended.counted,
    finished_at = ended.finished_at,
    exit_code   = ended.exit_code,
    signal      = ended.signal,
    result      = coalesce(ended.result, runs.result),
    cost        = coalesce(ended.cost, runs.cost),
    pid         = NULL,
    pid_ticks   = NULL
FROM (
    SELECT json_extract(value, '$[0]')  AS id,
           json_extract(value, '$[1]')  AS claim,
           json_extract(value, '$[2]')  AS expects,
           json_extract(value, '$[3]')  AS state,
           json_extract(value, '$[4]')  AS reason,
           json_extract(value, '$[5]')  AS message,
           json_extract(value, '$[6]')  AS ready_at,
           json_extract(value, '$[7]')  AS attempt,
           json_extract(value, '$[8]')  AS counted,
           json_extract(value, '$[9]')  AS finished_at,
           json_extract(value, '$[10]') AS exit_code,
           json_extract(value, '$[11]') AS signal,
           json_extract(value, '$[12]') AS result,
           json_extract(value, '$[13]') AS cost
    FROM json_each(:ends)
) AS ended
WHERE runs.id = ended.id
  AND runs.claim = ended.claim
  AND +runs.state = ended.expects;

-- name: finish_attempt
-- How the executions of these claims ended.
UPDATE attempts
SET finished_at = :now,
    state       = ended.state,
    reason      = ended.reason,
    message     = ended.message,
    exit_code   = ended.exit_code,
    signal      = ended.signal
FROM (
    SELECT json_extract(value, '$[0]') AS run,
           json_extract(value, '$[1]') AS claim,
           json_extract(value, '$[2]') AS state,
           json_extract(value, '$[3]') AS reason,
           json_extract(value, '$[4]') AS message,
           json_extract(value, '$[5]') AS exit_code,
           json_extract(value, '$[6]') AS signal
    FROM json_each(:ends)
) AS ended
WHERE attempts.run = ended.run
  AND attempts.claim = ended.claim
  AND attempts.finished_at IS NULL;

-- name: write_counters
-- Failures, crashes and ended runs of these jobs, each if its row is still the one that was read.
UPDATE jobs
SET failures   = counted.failures,
    crashes    = counted.crashes,
    fires_done = counted.fires_done
FROM (
    SELECT json_extract(value, '$[0]') AS id,
           json_extract(value, '$[1]') AS seen_revision,
           json_extract(value, '$[2]') AS added_revision,
           json_extract(value, '$[3]') AS failures,
           json_extract(value, '$[4]') AS crashes,
           json_extract(value, '$[5]') AS fires_done
    FROM json_each(:counters)
) AS counted
WHERE jobs.id = counted.id
  AND jobs.revision = counted.seen_revision
  AND jobs.added_revision = counted.added_revision;

-- name: end_job
-- `completed` or `failed`: wins over a pause (I5).
UPDATE jobs
SET status       = ended.status,
    pause_reason = NULL,
    pause_mode   = NULL,
    pause_by     = NULL,
    pause_note   = NULL,
    pause_since  = NULL,
    pause_until  = NULL,
    held_from    = NULL,
    next_fire_at = NULL,
    due_at       = NULL
FROM (
    SELECT json_extract(value, '$[0]') AS id,
           json_extract(value, '$[1]') AS status,
           json_extract(value, '$[2]') AS seen_revision
    FROM json_each(:ends)
) AS ended
WHERE jobs.id = ended.id
  AND +jobs.status IN ('active', 'paused')
  AND jobs.removed_at IS NULL
  AND jobs.revision = ended.seen_revision;

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
