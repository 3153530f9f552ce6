-- name: jobs_with_retention
-- Jobs that keep only so many executed runs, in slices.
SELECT id, json_extract(definition, '$.keep_runs') AS keep_runs FROM jobs
WHERE json_extract(definition, '$.keep_runs') IS NOT NULL
  AND id > :after
ORDER BY id
LIMIT :limit;

-- name: prunable_runs
-- Executed runs of a job beyond the newest :keep, oldest first: ended, and without an item that is unknown.
SELECT seq, id FROM runs
WHERE job = :job
  AND seq < (SELECT seq FROM runs WHERE job = :job AND state <> 'skipped' ORDER BY seq DESC LIMIT 1 OFFSET :keep - 1)
  AND state IN ('succeeded', 'partial', 'failed', 'cancelled', 'crashed', 'interrupted')
  AND NOT EXISTS (SELECT 1 FROM items WHERE items.run = runs.id AND items.state = 'unknown')
ORDER BY seq
LIMIT :limit;

-- name: delete_run
-- A run leaves the history, if it is still one that has ended.
DELETE FROM runs
WHERE seq = :seq
  AND state IN ('succeeded', 'partial', 'failed', 'cancelled', 'crashed', 'interrupted');

-- name: delete_attempts
-- Its attempts go with it.
DELETE FROM attempts WHERE run = :run;

-- name: delete_items
-- Its items go with it.
DELETE FROM items WHERE run = :run;
