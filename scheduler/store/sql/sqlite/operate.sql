-- name: pause_job
-- The job is paused; the slot that this holds back is remembered.
UPDATE jobs
SET status       = 'paused',
    pause_reason = :reason,
    pause_mode   = :mode,
    pause_by     = :by,
    pause_note   = :note,
    pause_since  = :now,
    pause_until  = :until,
    held_from    = coalesce(held_from, next_fire_at),
    next_fire_at = NULL,
    due_at       = NULL,
    revision     = :revision
WHERE id = :id
  AND removed_at IS NULL
  AND status = 'active'
  AND revision = :seen_revision;

-- name: change_pause
-- A pause on a paused job: mode, words and end are the newest, since when it holds stays.
UPDATE jobs
SET pause_reason = :reason,
    pause_mode   = :mode,
    pause_by     = :by,
    pause_note   = :note,
    pause_until  = :until,
    revision     = :revision
WHERE id = :id
  AND removed_at IS NULL
  AND status = 'paused'
  AND revision = :seen_revision;

-- name: resume_job
-- The job is active again; its counters start anew. A pause that lifts itself must still be the timed one.
UPDATE jobs
SET status       = 'active',
    pause_reason = NULL,
    pause_mode   = NULL,
    pause_by     = NULL,
    pause_note   = NULL,
    pause_since  = NULL,
    pause_until  = NULL,
    held_from    = :held_from,
    failures     = 0,
    crashes      = 0,
    next_fire_at = :next_fire_at,
    due_at       = :due_at,
    revision     = :revision
WHERE id = :id
  AND removed_at IS NULL
  AND status IN ('paused', 'failed')
  AND revision = :seen_revision
  AND (:over_by IS NULL OR pause_until <= :over_by);

-- name: wish_run
-- What the operator wants of one run; `cancel` is never taken back.
UPDATE runs
SET wish = :wish
WHERE id = :id
  AND wish <> 'cancel'
  AND wish <> :wish
  AND state IN ('running', 'recovering', 'waiting', 'held', 'queued');

-- name: lift_wishes
-- A resume turns `hold` and `freeze` back into `run`.
UPDATE runs
SET wish = 'run'
WHERE job = :job
  AND wish IN ('hold', 'freeze')
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held')
RETURNING id;

-- name: release_held
-- A resume lets held runs wait for their next claim.
UPDATE runs
SET state    = 'waiting',
    ready_at = :now
WHERE job = :job
  AND state = 'held'
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held');

-- name: forget_under_pause
-- The pause that a manual run was started under is over, or a later one holds it like any other.
UPDATE runs
SET under_pause = 0
WHERE job = :job
  AND under_pause = 1
  AND state IN ('queued', 'running', 'recovering', 'waiting', 'held');

-- name: pass_over
-- The operator passes over the next slots.
UPDATE jobs
SET next_fire_at = :next_fire_at,
    due_at       = :due_at,
    revision     = :revision
WHERE id = :id
  AND status = 'active'
  AND enabled = 1
  AND removed_at IS NULL
  AND next_fire_at = :seen_fire_at
  AND revision = :seen_revision;

-- name: ready_now
-- A waiting run may be claimed now.
UPDATE runs SET ready_at = :now WHERE id = :id AND state = 'waiting';

-- name: requeue_run
-- The verb `retry`: a run that did not succeed starts over, at attempt 1.
UPDATE runs
SET state       = 'queued',
    reason      = NULL,
    message     = NULL,
    attempt     = 1,
    wish        = 'run',
    queued_at   = :now,
    finished_at = NULL,
    exit_code   = NULL,
    signal      = NULL,
    under_pause = :under_pause,
    added_revision = :added_revision
WHERE id = :id
  AND state IN ('partial', 'failed', 'cancelled', 'crashed', 'interrupted')
  AND claim = :seen_claim;
