-- name: list_jobs
-- A page of jobs by id.
SELECT * FROM jobs JOIN definitions USING (id)
WHERE id > :after
  AND removed_at IS NULL
ORDER BY id
LIMIT :limit;

-- name: list_jobs_of_status
-- A page of the jobs of one status by id.
SELECT * FROM jobs JOIN definitions USING (id)
WHERE status = :status
  AND id > :after
  AND removed_at IS NULL
ORDER BY id
LIMIT :limit;

-- name: list_jobs_in_group
-- A page of the jobs of one group by id.
SELECT * FROM jobs JOIN definitions USING (id)
WHERE group_name = :group_name
  AND id > :after
  AND removed_at IS NULL
ORDER BY id
LIMIT :limit;

-- name: jobs_stretch
-- The last id of a stretch of so many jobs.
SELECT max(id) AS until FROM (SELECT id FROM jobs WHERE id > :after ORDER BY id LIMIT :stretch);

-- name: search_jobs
-- Those of a stretch of jobs that fit.
SELECT * FROM jobs JOIN definitions USING (id)
WHERE id > :after
  AND id <= :until
  AND removed_at IS NULL
  AND (:status IS NULL OR status = :status)
  AND (:group_name IS NULL OR group_name = :group_name)
  AND (:label IS NULL OR EXISTS (SELECT 1 FROM json_each(definition, '$.labels') WHERE value = :label))
  AND (:search IS NULL OR instr(id, :search) > 0
       OR instr(lower(coalesce(json_extract(definition, '$.description'), '')), :search) > 0)
ORDER BY id
LIMIT :limit;

-- name: next_fires
-- Jobs that fire next, in their order.
SELECT id, due_at FROM jobs
WHERE due_at IS NOT NULL
  AND removed_at IS NULL
ORDER BY due_at
LIMIT :limit;

-- name: last_runs
-- The newest executed run of each of these jobs.
SELECT runs.* FROM json_each(:jobs) AS wanted
JOIN runs ON runs.seq = (SELECT max(seq) FROM runs WHERE job = wanted.value AND state <> 'skipped');

-- name: live_runs_of
-- Live and queued runs of these jobs, oldest first.
SELECT * FROM runs
WHERE job IN (SELECT value FROM json_each(:jobs))
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
ORDER BY seq;

-- name: list_runs
-- A page of runs, newest first.
SELECT * FROM runs WHERE seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_in_state
-- A page of the runs in one state, newest first.
SELECT * FROM runs WHERE state = :state AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_of_job
-- A page of one job's runs, newest first.
SELECT * FROM runs WHERE job = :job AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: runs_stretch
-- The oldest of so many runs of a job.
SELECT min(seq) AS start
FROM (SELECT seq FROM runs WHERE job = :job AND seq < :before ORDER BY seq DESC LIMIT :stretch);

-- name: search_runs_of_job
-- Those of a stretch of one job's runs that fit, newest first.
SELECT * FROM runs
WHERE job = :job
  AND seq < :before
  AND seq >= :from
  AND (:state IS NULL OR state = :state)
  AND (:since IS NULL OR coalesce(started_at, queued_at) >= :since)
ORDER BY seq DESC
LIMIT :limit;

-- name: search_runs
-- Those of a stretch of runs that are not older than a moment, newest first.
SELECT * FROM runs
WHERE seq < :before
  AND seq >= :from
  AND (:state IS NULL OR state = :state)
  AND coalesce(started_at, queued_at) >= :since
ORDER BY seq DESC
LIMIT :limit;

-- name: newest_seq
-- The sequence number of the newest run.
SELECT coalesce(max(seq), 0) AS seq FROM runs;

-- name: list_attempts
-- The attempts of a run, oldest first.
SELECT * FROM attempts WHERE run = :run ORDER BY claim;

-- name: run_at
-- The row that explains a fire time.
SELECT * FROM runs WHERE seq = (
    SELECT max(seq) FROM (
        SELECT seq FROM runs WHERE job = :job AND fire_time = :fire_time AND state <> 'skipped'
        UNION ALL
        SELECT seq FROM (
            SELECT seq, coalesce(fire_time_last, fire_time) AS last FROM runs
            WHERE job = :job
              AND state = 'skipped'
              AND fire_time <= :fire_time
            ORDER BY fire_time DESC
            LIMIT 100
        )
        WHERE last >= :fire_time
    )
);

-- name: list_audit
-- A page of a job's mutations, newest first, with those of all jobs among them.
SELECT * FROM (SELECT * FROM audit WHERE job = :job AND seq < :before ORDER BY seq DESC LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT * FROM audit WHERE job IS NULL AND seq < :before ORDER BY seq DESC LIMIT :limit)
ORDER BY seq DESC
LIMIT :limit;

-- name: controllers
-- Main processes of live runs whose jobs may operate the daemon.
SELECT runs.pid, runs.pid_ticks
FROM runs JOIN definitions ON definitions.id = runs.job
WHERE runs.state = 'running'
  AND runs.pid IS NOT NULL
  AND runs.pid_ticks IS NOT NULL
  AND json_extract(definitions.definition, '$.control') = 1;

-- name: count_jobs
-- Jobs by status.
SELECT status AS name, number FROM job_counts WHERE number > 0;

-- name: count_runs
-- Unfinished runs by state.
SELECT state AS name, count(*) AS number FROM runs
WHERE state IN ('queued', 'running', 'recovering', 'waiting', 'held')
GROUP BY state;

-- name: file_definitions
-- The definitions that came from files.
SELECT id, origin_file, definition FROM jobs JOIN definitions USING (id) WHERE origin = 'file' AND removed_at IS NULL;

-- name: api_ids
-- Which of these ids have jobs that were made through the API.
SELECT id FROM jobs
WHERE id IN (SELECT value FROM json_each(:ids))
  AND origin = 'api'
  AND removed_at IS NULL;

-- name: broken_jobs
-- Jobs that cannot run as they stand.
SELECT * FROM jobs JOIN definitions USING (id) WHERE problem_code = 'broken' AND removed_at IS NULL ORDER BY id;

-- name: telling_jobs
-- A slice of the jobs of which somebody wants to hear.
SELECT * FROM jobs JOIN definitions USING (id)
WHERE tells = 1
  AND removed_at IS NULL
  AND id > :after
ORDER BY id
LIMIT :limit;
