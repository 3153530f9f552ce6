-- name: due_on_time
-- Jobs that are due and not very late, earliest first; the columns of `rows.JOB_COLUMNS`.
-- `due_at` is only set where the job may fire.
SELECT json_group_array(json_array(
    id, status, enabled, revision, definition_revision, added_revision, origin, origin_file,
    next_fire_at, due_at, last_fire_at, generation, fires_done, failures, crashes,
    problem_code, problem_message, removed_at, held_from,
    pause_reason, pause_mode, pause_by, pause_note, pause_since, pause_until
))
FROM (
    SELECT * FROM jobs
    WHERE due_at IS NOT NULL
      AND due_at <= :now
      AND due_at >= :late_before
      AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
    ORDER BY due_at
    LIMIT :limit
);

-- name: due_late
-- Jobs that are due since long, earliest first; the columns of `rows.JOB_COLUMNS`.
SELECT json_group_array(json_array(
    id, status, enabled, revision, definition_revision, added_revision, origin, origin_file,
    next_fire_at, due_at, last_fire_at, generation, fires_done, failures, crashes,
    problem_code, problem_message, removed_at, held_from,
    pause_reason, pause_mode, pause_by, pause_note, pause_since, pause_until
))
FROM (
    SELECT * FROM jobs
    WHERE due_at IS NOT NULL
      AND due_at < :late_before
      AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
    ORDER BY due_at
    LIMIT :limit
);

-- name: is_claimable
-- Whether some run waits for a claim and may perhaps have it now.
SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'queued')
    OR EXISTS (SELECT 1 FROM runs INDEXED BY runs_waiting WHERE state = 'waiting' AND ready_at <= :now);

-- name: move_job
-- FIRE: the jobs move to their next slots, each if it is still exactly as it was planned from.
-- The plus keeps SQLite from looking through all active jobs.
UPDATE jobs
SET next_fire_at = plan.next_fire_at,
    due_at       = plan.due_at,
    last_fire_at = plan.last_fire_at
FROM (
    SELECT json_extract(value, '$[0]') AS id,
           json_extract(value, '$[1]') AS next_fire_at,
           json_extract(value, '$[2]') AS due_at,
           json_extract(value, '$[3]') AS last_fire_at,
           json_extract(value, '$[4]') AS seen_fire_at,
           json_extract(value, '$[5]') AS seen_revision
    FROM json_each(:plans)
) AS plan
WHERE jobs.id = plan.id
  AND +jobs.status = 'active'
  AND jobs.enabled = 1
  AND jobs.removed_at IS NULL
  AND jobs.next_fire_at = plan.seen_fire_at
  AND jobs.revision = plan.seen_revision
  AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL);

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
SELECT * FROM jobs JOIN definitions USING (id)
WHERE due_at IS NOT NULL
  AND id > :after
ORDER BY id
LIMIT :limit;

-- name: occupancy
-- The unfinished runs of each of these jobs, and what the engine may have written since the job was looked at.
-- Scheduled runs count for `max_runs`: those of this incarnation.
SELECT json_group_array(json_array(
    id, live, claimed, recovering, queued, scheduled, generation, problem_code
))
FROM (
    SELECT jobs.id,
           count(*) FILTER (WHERE runs.state <> 'queued')                       AS live,
           count(*) FILTER (WHERE runs.state IN ('running', 'recovering'))      AS claimed,
           count(*) FILTER (WHERE runs.state = 'recovering')                    AS recovering,
           count(*) FILTER (WHERE runs.state = 'queued')                        AS queued,
           count(*) FILTER (
               WHERE runs.trigger IN ('schedule', 'catch_up')
                 AND runs.job_counted = 0
                 AND runs.added_revision = jobs.added_revision
           )                                                                    AS scheduled,
           jobs.generation,
           jobs.problem_code
    FROM json_each(:jobs) AS asked
    CROSS JOIN jobs ON jobs.id = asked.value
    LEFT JOIN runs ON runs.job = jobs.id AND runs.state IN ('queued', 'running', 'recovering', 'waiting', 'held')
    GROUP BY asked.key
);

-- name: unfinished_runs
-- Live and queued runs of a job, oldest first.
SELECT * FROM runs INDEXED BY runs_unfinished
WHERE job = :job
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
ORDER BY seq;

-- name: claimed_total
-- Claims in force in the whole store.
SELECT count(*) FROM runs WHERE state IN ('running', 'recovering');

-- name: claimed_in_group
-- Claims in force in one group.
SELECT count(*)
FROM runs JOIN jobs ON jobs.id = runs.job
WHERE runs.state IN ('running', 'recovering')
  AND jobs.group_name = :group_name;

-- name: insert_run
-- New runs, claimed at once or queued. A fire time that already made a run makes no other (I1).
INSERT INTO runs (
    id, job, trigger, state, fire_time, generation, args, under_pause, solo, added_revision,
    definition_revision, claim, owner, lease_until, claimed_at, started_at, progress_at, queued_at,
    priority, group_name
)
SELECT json_extract(value, '$[0]'),
       json_extract(value, '$[1]'),
       json_extract(value, '$[2]'),
       json_extract(value, '$[3]'),
       json_extract(value, '$[4]'),
       json_extract(value, '$[5]'),
       json_extract(value, '$[6]'),
       json_extract(value, '$[7]'),
       json_extract(value, '$[8]'),
       json_extract(value, '$[9]'),
       json_extract(value, '$[10]'),
       json_extract(value, '$[11]'),
       json_extract(value, '$[12]'),
       json_extract(value, '$[13]'),
       json_extract(value, '$[14]'),
       json_extract(value, '$[14]'),
       json_extract(value, '$[14]'),
       :now,
       json_extract(value, '$[15]'),
       json_extract(value, '$[16]')
FROM json_each(:runs)
WHERE true
ON CONFLICT DO NOTHING;

-- name: inserted_runs
-- Which of these runs there are, each with its place in the history.
SELECT json_group_array(json_array(runs.id, runs.seq))
FROM json_each(:ids) AS asked JOIN runs ON runs.id = asked.value;

-- name: insert_attempt
-- The executions that these claims stand for.
INSERT INTO attempts (run, claim, attempt, owner, started_at)
SELECT json_extract(value, '$[0]'),
       json_extract(value, '$[1]'),
       json_extract(value, '$[2]'),
       json_extract(value, '$[3]'),
       :now
FROM json_each(:attempts);

-- name: newest_runs
-- The newest row of each of these jobs, whatever it is.
SELECT json_group_array(json_array(job, seq, state, reason, generation, message))
FROM runs
WHERE seq IN (
    SELECT (SELECT max(seq) FROM runs WHERE job = asked.value) FROM json_each(:jobs) AS asked
);

-- name: insert_skip
-- Fire times that did not run, in one row for each job.
INSERT INTO runs (
    id, job, reason, message, fire_time, fire_time_last, count, generation, added_revision,
    trigger, state, solo, queued_at, finished_at
)
SELECT json_extract(value, '$[0]'),
       json_extract(value, '$[1]'),
       json_extract(value, '$[2]'),
       json_extract(value, '$[3]'),
       json_extract(value, '$[4]'),
       json_extract(value, '$[5]'),
       json_extract(value, '$[6]'),
       json_extract(value, '$[7]'),
       json_extract(value, '$[8]'),
       'schedule',
       'skipped',
       0,
       :now,
       :now
FROM json_each(:skips);

-- name: extend_skip
-- The newest rows of these jobs are skips of the same reason: they stand for these fire times too.
UPDATE runs
SET fire_time_last = more.last,
    count          = runs.count + more.count,
    message        = more.message,
    finished_at    = :now
FROM (
    SELECT json_extract(value, '$[0]') AS seq,
           json_extract(value, '$[1]') AS reason,
           json_extract(value, '$[2]') AS generation,
           json_extract(value, '$[3]') AS last,
           json_extract(value, '$[4]') AS count,
           json_extract(value, '$[5]') AS message
    FROM json_each(:skips)
) AS more
WHERE runs.seq = more.seq
  AND +runs.state = 'skipped'
  AND runs.reason = more.reason
  AND runs.generation = more.generation;

-- name: claim_candidates
-- Runs that may start now: priority, then the older slot; a waiting run stands back only for runs in force.
-- The columns of `rows.RUN_COLUMNS`.
SELECT json_group_array(json_array(
    id, seq, job, trigger, state, reason, message, ready_at,
    fire_time, fire_time_last, count, generation, args, under_pause, wish,
    attempt, claim, owner, lease_until, serial,
    queued_at, claimed_at, started_at, finished_at, progress_at, job_counted,
    added_revision, definition_revision, pid, pid_ticks, exit_code, signal, result,
    CASE WHEN cost IS NOT NULL THEN json(printf('%!.17g', cost)) END,
    done, total, failed, unknown, progress_message, items_total, spent
))
FROM (
    SELECT runs.*
    FROM runs INDEXED BY runs_queue CROSS JOIN jobs ON jobs.id = runs.job
    WHERE runs.state IN ('queued', 'waiting')
      AND (runs.state = 'queued' OR runs.ready_at <= :now)
      AND (runs.group_name IS NULL OR runs.group_name NOT IN (SELECT value FROM json_each(:full_groups)))
      AND runs.wish = 'run'
      AND jobs.removed_at IS NULL
      AND ((jobs.status = 'active' AND (jobs.enabled = 1 OR runs.trigger = 'manual'))
           OR (runs.under_pause = 1 AND jobs.pause_reason IS NOT 'budget'))
      AND jobs.max_running > (SELECT count(*) FROM runs AS other
                              WHERE other.job = runs.job
                                AND other.state IN ('running', 'recovering', 'waiting', 'held')
                                AND (runs.state = 'queued' OR other.state IN ('running', 'recovering')))
      AND NOT EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL)
    ORDER BY runs.priority DESC, coalesce(runs.fire_time, runs.queued_at), runs.seq
    LIMIT :limit
);

-- name: claim_run
-- Claims: the runs are running under new fencing tokens, each if it still is as it was looked at.
-- The plus keeps SQLite from looking through all runs of that state.
UPDATE runs
SET state               = 'running',
    reason              = NULL,
    message             = NULL,
    ready_at            = NULL,
    claim               = runs.claim + 1,
    owner               = :owner,
    lease_until         = :lease_until,
    claimed_at          = :now,
    started_at          = coalesce(runs.started_at, :now),
    progress_at         = :now,
    definition_revision = chosen.definition_revision,
    solo                = CASE WHEN runs.state = 'queued' THEN chosen.solo ELSE runs.solo END,
    serial              = chosen.serial
FROM (
    SELECT json_extract(value, '$[0]') AS id,
           json_extract(value, '$[1]') AS definition_revision,
           json_extract(value, '$[2]') AS solo,
           json_extract(value, '$[3]') AS serial,
           json_extract(value, '$[4]') AS seen_state,
           json_extract(value, '$[5]') AS seen_claim
    FROM json_each(:claims)
) AS chosen
WHERE runs.id = chosen.id
  AND +runs.state = chosen.seen_state
  AND runs.claim = chosen.seen_claim
  AND runs.wish = 'run';

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
    FROM runs INDEXED BY runs_waiting JOIN jobs ON jobs.id = runs.job
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
