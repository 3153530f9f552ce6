-- name: global_pause
-- The pause of all jobs, if there is one.
SELECT id, mode, by, note, since, until FROM global_pauses WHERE lifted_at IS NULL;

-- name: global_spans
-- Pauses of all jobs that ended at or after a moment, oldest first.
SELECT mode, by, note, since, until, lifted_at FROM global_pauses WHERE lifted_at >= :after ORDER BY since;

-- name: global_spans_and_open
-- The same, and the one that holds now.
SELECT mode, by, note, since, until, lifted_at FROM global_pauses
WHERE lifted_at >= :after OR lifted_at IS NULL
ORDER BY since;

-- name: begin_global_pause
-- All jobs are paused; no job's row is touched.
INSERT INTO global_pauses (mode, by, note, since, until)
VALUES (:mode, :by, :note, :now, :until);

-- name: change_global_pause
-- A pause on paused jobs: mode, words and end are the newest, since when it holds stays.
UPDATE global_pauses
SET mode  = :mode,
    by    = :by,
    note  = :note,
    until = :until
WHERE id = :id
  AND lifted_at IS NULL;

-- name: lift_global_pause
-- The pause of all jobs is over; a timed one that lifts itself only if its time has come.
UPDATE global_pauses
SET lifted_at = :lifted_at
WHERE id = :id
  AND lifted_at IS NULL
  AND (:over_by IS NULL OR until <= :over_by);

-- name: runs_at_work
-- Runs in flight in the whole store, oldest first; those that wait for a slot are not.
SELECT * FROM runs
WHERE state IN ('running', 'recovering', 'waiting', 'held')
ORDER BY seq;

-- name: lift_all_wishes
-- The end of a pause of all jobs turns `hold` and `freeze` back into `run`.
UPDATE runs
SET wish = 'run'
WHERE wish IN ('hold', 'freeze')
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
RETURNING id;

-- name: release_all_held
-- Held runs of jobs that are not paused by themselves wait for their next claim.
UPDATE runs
SET state    = 'waiting',
    ready_at = :now
WHERE state = 'held'
  AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = runs.job AND jobs.status = 'paused');

-- name: pauses_over
-- Jobs whose timed pause has come to its end, those of the earliest moment first.
SELECT id, pause_until, revision FROM jobs
WHERE pause_until <= :now
  AND removed_at IS NULL
ORDER BY pause_until
LIMIT :limit;

-- name: is_pause_over
-- Whether some timed pause has come to its end.
SELECT EXISTS (SELECT 1 FROM jobs WHERE pause_until <= :now AND removed_at IS NULL)
    OR EXISTS (SELECT 1 FROM global_pauses WHERE lifted_at IS NULL AND until <= :now) AS over;
