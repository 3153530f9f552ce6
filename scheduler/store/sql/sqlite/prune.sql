-- name: jobs_after
-- A slice of the jobs, removed ones too, with what each wants kept.
SELECT id, json_extract(definition, '$.keep_runs') AS keep_runs
FROM definitions
WHERE id > :after
ORDER BY id
LIMIT :limit;

-- name: jobs_named
-- The same of these jobs.
SELECT id, json_extract(definition, '$.keep_runs') AS keep_runs
FROM definitions
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: ran_since
-- The jobs of the next rows of the history, whatever those are, and where to go on.
SELECT max(seq) AS until, json_group_array(DISTINCT job) AS jobs
FROM (SELECT seq, job FROM runs WHERE seq > :after ORDER BY seq LIMIT :limit);

-- name: surplus_runs
-- Executed runs of a job beyond the newest :keep, oldest first: ended, and without an item that is unknown.
SELECT id
FROM runs
WHERE job = :job
  AND seq < (SELECT seq FROM runs WHERE job = :job AND state <> 'skipped' ORDER BY seq DESC LIMIT 1 OFFSET :keep - 1)
  AND state IN ('succeeded', 'partial', 'failed', 'cancelled', 'crashed', 'interrupted')
  AND NOT EXISTS (SELECT 1 FROM items WHERE items.run = runs.id AND items.state = 'unknown')
ORDER BY seq
LIMIT :limit;

-- name: rows_by_age
-- The rows of a job from the oldest on, each with the moment that its age counts from; read as far as they are old.
-- The newest executed one stays, but for a job that was removed.
SELECT
    id,
    max(coalesce(finished_at, 0), coalesce(fire_time_last, 0)) AS ended_at,
    state = 'skipped'
    OR (
        state IN ('succeeded', 'partial', 'failed', 'cancelled', 'crashed', 'interrupted')
        AND (
            seq < (SELECT max(seq) FROM runs AS newer WHERE newer.job = :job AND newer.state <> 'skipped')
            OR EXISTS (SELECT 1 FROM jobs WHERE id = :job AND removed_at IS NOT NULL)
        )
        AND NOT EXISTS (SELECT 1 FROM items WHERE items.run = runs.id AND items.state = 'unknown')
    ) AS may_go
FROM runs
WHERE job = :job
ORDER BY seq;

-- name: delete_runs
-- Runs leave the history, where they still have ended and have no item that is unknown, or are skips.
DELETE FROM runs
WHERE id IN (SELECT value FROM json_each(:runs))
  AND +state IN ('succeeded', 'partial', 'failed', 'cancelled', 'crashed', 'interrupted', 'skipped')
  AND NOT EXISTS (SELECT 1 FROM items WHERE items.run = runs.id AND items.state = 'unknown')
RETURNING id;

-- name: delete_attempts
-- Their attempts go with them.
DELETE FROM attempts WHERE run IN (SELECT value FROM json_each(:runs));

-- name: note_pruned
-- What else belongs to them is still there.
INSERT INTO pruned (run) SELECT value FROM json_each(:runs) WHERE true;

-- name: list_pruned
-- Runs that have left the history, and of which something may be left.
SELECT run FROM pruned ORDER BY run LIMIT :limit;

-- name: runs_with_items
-- Those of these runs that have items.
SELECT value AS run FROM json_each(:runs) WHERE EXISTS (SELECT 1 FROM items WHERE items.run = value);

-- name: delete_items
-- Its items go, a bounded number at a time.
DELETE FROM items
WHERE run = :run
  AND seq IN (SELECT seq FROM items WHERE run = :run ORDER BY seq LIMIT :limit);

-- name: forget_pruned
-- Those of which nothing is left are forgotten.
DELETE FROM pruned
WHERE run IN (SELECT value FROM json_each(:runs))
  AND NOT EXISTS (SELECT 1 FROM items WHERE items.run = pruned.run);

-- name: delete_audit
-- The oldest entries of the audit go by age, a bounded number at a time.
DELETE FROM audit
WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT :limit)
  AND at < :before;

-- name: delete_removed
-- Jobs that were removed long ago and have no run left, a bounded number at a time.
-- A paused one stays: put back, it is paused.
DELETE FROM jobs
WHERE id IN (
    SELECT id FROM jobs
    WHERE removed_at < :before
      AND pause_reason IS NULL
      AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.job = jobs.id)
    LIMIT :limit
);

-- name: delete_changes
-- Of the sequence of changes the newest ten thousand stay, for whoever polls it.
DELETE FROM changes
WHERE seq IN (SELECT seq FROM changes ORDER BY seq LIMIT :limit)
  AND seq <= (SELECT max(seq) FROM changes) - 10000;

-- name: page_counts
-- Pages of the file, and those of them that nothing stands on.
SELECT page_count AS pages, freelist_count AS free FROM pragma_page_count, pragma_freelist_count;

-- name: give_back_page
-- One free page goes back to the file system; what stands at the end moves into it.
PRAGMA incremental_vacuum(1);
