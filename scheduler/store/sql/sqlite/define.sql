-- name: known_jobs
-- Which of these jobs there ever were, tombstones too.
SELECT json_group_array(json_array(id))
FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: insert_job
-- New jobs.
INSERT INTO jobs (
    id, definition_revision, added_revision, revision, origin, origin_file, held_from, enabled,
    group_name, max_running, priority, tells, next_fire_at, due_at, status
)
SELECT json_extract(value, '$[0]'),
       json_extract(value, '$[1]'),
       json_extract(value, '$[1]'),
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
       'active'
FROM json_each(:jobs);

-- name: restore_job
-- A tombstone comes back as a new incarnation: a pause stays, an end does not.
UPDATE jobs
SET definition_revision = :revision,
    added_revision      = :revision,
    revision            = :revision,
    origin              = :origin,
    origin_file         = :origin_file,
    enabled             = :enabled,
    group_name          = :group_name,
    max_running         = :max_running,
    priority            = :priority,
    tells               = :tells,
    status              = CASE WHEN status = 'paused' THEN 'paused' ELSE 'active' END,
    removed_at          = NULL,
    held_from           = :held_from,
    next_fire_at        = :next_fire_at,
    due_at              = :due_at,
    failures            = 0,
    crashes             = 0
WHERE id = :id
  AND removed_at IS NOT NULL
  AND revision = :seen_revision;

-- name: start_incarnation
-- The engine's own columns of a job that was added again.
UPDATE jobs
SET fires_done      = 0,
    problem_code    = NULL,
    problem_message = NULL
WHERE id = :id
  AND added_revision = :added_revision;

-- name: change_job
-- A new definition; the pause, the claims and the counters are not its business.
UPDATE jobs
SET definition_revision = :revision,
    revision            = :revision,
    origin_file         = :origin_file,
    enabled             = :enabled,
    group_name          = :group_name,
    max_running         = :max_running,
    priority            = :priority,
    tells               = :tells,
    held_from           = :held_from,
    next_fire_at        = :next_fire_at,
    due_at              = :due_at
WHERE id = :id
  AND removed_at IS NULL
  AND revision = :seen_revision;

-- name: write_definition
-- What these jobs are to do, once their rows are written.
INSERT INTO definitions (id, definition)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:definitions)
WHERE true
ON CONFLICT (id) DO UPDATE SET definition = excluded.definition;

-- name: revive_job
-- A completed job whose end was edited away is active again.
UPDATE jobs
SET status = 'active'
WHERE id = :id
  AND status = 'completed'
  AND removed_at IS NULL;

-- name: move_file
-- The same definition stands in another file now.
UPDATE jobs SET origin_file = :origin_file WHERE id = :id AND removed_at IS NULL AND origin = 'file';

-- name: remove_job
-- A tombstone: pause, revision and history stay.
UPDATE jobs
SET removed_at          = :now,
    definition_revision = :revision,
    revision            = :revision,
    held_from           = NULL,
    next_fire_at        = NULL,
    due_at              = NULL
WHERE id = :id
  AND removed_at IS NULL
  AND revision = :seen_revision;
