-- name: last_owner
-- The daemon that served this store before.
SELECT id, boot_id, stopped_at FROM owners ORDER BY started_at DESC, id LIMIT 1;

-- name: count_deaths
-- Daemons that ended without signing off, and whose successor (or this start) came after :since.
SELECT count(*) FROM (
    SELECT stopped_at, lead(started_at, 1, :now) OVER (ORDER BY started_at, id) AS succeeded_at FROM owners
)
WHERE stopped_at IS NULL AND succeeded_at > :since;

-- name: register_owner
-- A process start.
INSERT INTO owners (id, machine_id, boot_id, pid, start_ticks, started_at)
VALUES (:id, :machine_id, :boot_id, :pid, :start_ticks, :now);

-- name: sign_off_owner
-- The process stopped in order.
UPDATE owners SET stopped_at = :now WHERE id = :id AND stopped_at IS NULL;

-- name: forget_owners
-- Old process starts that no unfinished run names are dropped; the newest hundred stay.
DELETE FROM owners
WHERE id NOT IN (SELECT id FROM owners ORDER BY started_at DESC LIMIT 100)
  AND id NOT IN (SELECT owner FROM runs WHERE state IN ('running', 'recovering'));

-- name: reset_crashes
-- Crashes before an orderly stop or another boot say nothing about a job.
UPDATE jobs SET crashes = 0 WHERE crashes > 0 AND status <> 'paused';
