-- name: renew_claims
-- The leases of the claims that are still this owner's; their wishes.
UPDATE runs
SET lease_until = :lease_until
WHERE state = 'running'
  AND owner = :owner
  AND (id, claim) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:claims))
RETURNING id, wish;

-- name: report_progress
-- A sign of life of the work, where the claim is still the writer's.
UPDATE runs
SET progress_at      = :progress_at,
    done             = coalesce(:done, done),
    total            = coalesce(:total, total),
    failed           = coalesce(:failed, failed),
    unknown          = coalesce(:unknown, unknown),
    progress_message = coalesce(:progress_message, progress_message),
    cost             = coalesce(:cost, cost)
WHERE id = :id
  AND claim = :claim
  AND state = 'running';

-- name: report_child
-- The identities of the main processes of these attempts.
-- The plus keeps SQLite from looking through all runs of that state.
UPDATE runs
SET pid       = child.pid,
    pid_ticks = child.pid_ticks
FROM (
    SELECT json_extract(value, '$[0]') AS run,
           json_extract(value, '$[1]') AS claim,
           json_extract(value, '$[2]') AS pid,
           json_extract(value, '$[3]') AS pid_ticks
    FROM json_each(:children)
) AS child
WHERE runs.id = child.run
  AND runs.claim = child.claim
  AND +runs.state = 'running';

-- name: report_attempt_child
-- The same in the history of attempts.
UPDATE attempts
SET pid = child.pid
FROM (
    SELECT json_extract(value, '$[0]') AS run,
           json_extract(value, '$[1]') AS claim,
           json_extract(value, '$[2]') AS pid
    FROM json_each(:children)
) AS child
WHERE attempts.run = child.run
  AND attempts.claim = child.claim
  AND EXISTS (
      SELECT 1 FROM runs WHERE runs.id = child.run AND runs.claim = child.claim AND +runs.state = 'running'
  );

-- name: claims_in_force
-- Every running row, as much of it as a release names.
SELECT id, claim, owner, lease_until FROM runs WHERE state = 'running';

-- name: recovering_runs
-- Rows whose processes are to be ended.
SELECT * FROM runs WHERE state = 'recovering' ORDER BY seq;

-- name: take_for_recovery
-- running -> recovering, if the claim is still exactly as it was seen.
UPDATE runs
SET state = 'recovering'
WHERE id = :id
  AND state = 'running'
  AND claim = :claim
  AND owner = :owner
  AND lease_until = :lease_until
RETURNING *;

-- name: reattach_run
-- recovering -> running under a new claim: its unit goes on, or has ended and tells how.
UPDATE runs
SET state       = 'running',
    claim       = claim + 1,
    owner       = :owner,
    lease_until = :lease_until,
    message     = NULL
WHERE id = :id
  AND state = 'recovering'
  AND claim = :claim
RETURNING *;

-- name: pass_attempt_on
-- The claim that was given up, in the history of attempts; its owner died, or stopped in order.
UPDATE attempts
SET finished_at = :now,
    state       = iif((SELECT stopped_at FROM owners WHERE id = attempts.owner) IS NULL, 'crashed', 'interrupted'),
    reason      = iif((SELECT stopped_at FROM owners WHERE id = attempts.owner) IS NULL, 'owner_died', 'shutdown'),
    message     = :message
WHERE run = :run
  AND claim = :claim;

-- name: leave_run
-- A run that goes on without its daemon says so.
UPDATE runs
SET message = :message
WHERE id = :id
  AND claim = :claim
  AND owner = :owner
  AND state = 'running';
