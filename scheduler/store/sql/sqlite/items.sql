-- name: clear_items
-- A list that was not finished goes, a slice at a time.
DELETE FROM items
WHERE run = :run
  AND seq IN (SELECT seq FROM items WHERE run = :run LIMIT :limit)
  AND EXISTS (SELECT 1 FROM runs
              WHERE id = :run AND state = 'running' AND claim = :claim AND items_total IS NULL);

-- name: put_items
-- A slice of the list, while the list is not whole and the claim is the writer's.
INSERT INTO items (run, seq, key, payload, state)
SELECT :run, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), 'pending'
FROM json_each(:rows)
WHERE EXISTS (SELECT 1 FROM runs
              WHERE id = :run AND state = 'running' AND claim = :claim AND items_total IS NULL)
ON CONFLICT DO NOTHING;

-- name: items_of_keys
-- Which places in the list have these keys.
SELECT seq, key FROM items WHERE run = :run AND key IN (SELECT value FROM json_each(:keys));

-- name: complete_items
-- The list is whole: from now on it is frozen.
UPDATE runs
SET items_total = :total,
    total       = :total,
    done        = 0,
    failed      = 0,
    unknown     = 0
WHERE id = :run
  AND state = 'running'
  AND claim = :claim
  AND items_total IS NULL
  AND :total = (SELECT count(*) FROM items WHERE run = :run);

-- name: item_counts
-- The items of a run by state; the sums stand on the run's row, changed with the items they sum up.
-- Failed ones that a run on its way has to begin again (model.items.Chosen above 1) count as pending.
SELECT items_total    AS total,
       done,
       CASE WHEN items_chosen > 1 AND finished_at IS NULL THEN 0 ELSE failed END AS failed,
       unknown,
       items_in_a_row AS in_a_row,
       spent,
       (SELECT count(*) FROM items WHERE run = runs.id AND state = 'running') AS running,
       CASE WHEN items_chosen IN (1, 4)
            THEN (SELECT count(*) FROM items WHERE run = runs.id AND state = 'pending' AND ready_at > 0)
            WHEN items_chosen = 3 THEN 0
       END
       + CASE WHEN items_chosen > 2 AND finished_at IS NULL THEN failed ELSE 0 END AS chosen
FROM runs
WHERE id = :run
  AND items_total IS NOT NULL;

-- name: due_items
-- Items that were begun before, or chosen, and may run now; those that wait longest come first.
SELECT seq FROM items
WHERE run = :run
  AND state = 'pending'
  AND ready_at BETWEEN 1 AND :now
ORDER BY ready_at, seq
LIMIT :limit;

-- name: fresh_items
-- Items that were never begun, in the order of the list.
SELECT seq FROM items
WHERE run = :run
  AND state = 'pending'
  AND ready_at = 0
ORDER BY ready_at, seq
LIMIT :limit;

-- name: next_item_ready
-- When the next item that waits for another try may have it.
SELECT min(ready_at) FROM items WHERE run = :run AND state = 'pending' AND ready_at > :now;

-- name: begin_items
-- BEGIN_ITEM: the intents are on record before the calls, if the claim and the operator still let them happen.
UPDATE items
SET state       = 'running',
    claim       = :claim,
    nonce       = :nonce || '-' || seq,
    effect_key  = run || ':' || key,
    attempts    = attempts + 1,
    ready_at    = 0,
    error       = NULL,
    spent       = spent + :reserve,
    reserved    = :reserve,
    started_at  = :now,
    finished_at = NULL
WHERE run = :run
  AND seq IN (SELECT value FROM json_each(:places))
  AND +state = 'pending' -- "+": by the primary key, not by the index of states, which names every pending item
  AND EXISTS (SELECT 1 FROM runs
              WHERE id = :run AND state = 'running' AND wish = 'run' AND claim = :claim)
RETURNING seq, key, payload, nonce, attempts, tries;

-- name: begun_items
-- Items under the begins that outcomes name; one that was given up as unknown may still be proved.
SELECT seq, state, tries, spent, reserved, started_at
FROM json_each(:begins) AS told CROSS JOIN items
WHERE run = :run
  AND seq = json_extract(told.value, '$[0]')
  AND nonce = json_extract(told.value, '$[1]')
  AND state IN ('running', 'unknown');

-- name: end_item
-- END_ITEM: the outcome of this begin.
UPDATE items
SET state       = :state,
    tries       = :tries,
    ready_at    = :ready_at,
    error       = :error,
    result      = :result,
    spent       = :spent,
    reserved    = :reserved,
    finished_at = :now
WHERE run = :run
  AND seq = :seq
  AND nonce = :nonce
  AND state IN ('running', 'unknown');

-- name: settle_begun
-- What became of items whose worker is gone, or was told to stop.
UPDATE items
SET state       = :state,
    ready_at    = :ready_at,
    error       = :error,
    finished_at = :now
WHERE run = :run
  AND state = 'running'
  AND EXISTS (SELECT 1 FROM runs WHERE id = :run AND state = :expects AND claim = :claim)
RETURNING seq, key;

-- name: wedged_runs
-- Runs with begun items that no claim in force stands for.
SELECT DISTINCT items.run AS run
FROM items JOIN runs ON runs.id = items.run
WHERE items.state = 'running'
  AND (runs.state NOT IN ('running', 'recovering') OR items.claim < runs.claim);

-- name: settle_wedged
-- Begun items of a run that ended, or went on under a later claim, without them.
UPDATE items
SET state       = :state,
    ready_at    = :ready_at,
    error       = :error,
    finished_at = :now
WHERE run = :run
  AND state = 'running'
  AND EXISTS (SELECT 1 FROM runs
              WHERE id = :run AND (state NOT IN ('running', 'recovering') OR items.claim < claim))
RETURNING seq, key;

-- name: count_items
-- The sums of a run follow its items.
UPDATE runs
SET done           = done + :done,
    failed         = failed + :failed,
    unknown        = unknown + :unknown,
    items_in_a_row = coalesce(:in_a_row, items_in_a_row),
    spent          = spent + :spent,
    cost           = CASE WHEN :spent = 0 THEN cost ELSE (spent + :spent) / 1000000.0 END,
    progress_at    = CASE WHEN state = 'running' THEN :now ELSE progress_at END
WHERE id = :run
  AND items_total IS NOT NULL;

-- name: count_spend
-- The sum of a day follows the items.
INSERT INTO spend (job, day, amount)
VALUES (:job, :day, :amount)
ON CONFLICT (job, day) DO UPDATE SET amount = amount + excluded.amount;

-- name: spent_on
-- What the items of a job have cost on this day.
SELECT amount FROM spend WHERE job = :job AND day = :day;

-- name: forgive_crashes
-- An item that was done proves that the job can make progress.
UPDATE jobs SET crashes = 0 WHERE id = :job AND crashes > 0 AND status <> 'paused';

-- name: item_of_key
-- One item.
SELECT * FROM items WHERE run = :run AND key = :key;

-- name: keys_after
-- The keys that stand at and behind this one in the order of letters.
SELECT key FROM items WHERE run = :run AND key >= :key ORDER BY key LIMIT :limit;

-- name: keys_before
-- The keys that stand before this one in the order of letters, nearest first.
SELECT key FROM items WHERE run = :run AND key < :key ORDER BY key DESC LIMIT :limit;

-- name: settle_item
-- The operator says what became of an item; never of one that is done, or at work.
UPDATE items
SET state       = :state,
    tries       = 0,
    ready_at    = :ready_at,
    error       = :error,
    finished_at = :now
WHERE run = :run
  AND seq = :seq
  AND state = :seen_state
  AND state IN ('pending', 'failed', 'unknown', 'skipped');

-- name: settle_run
-- A run that ended is what its settled items say.
UPDATE runs
SET state   = :state,
    reason  = :reason,
    message = :message
WHERE id = :run
  AND state = :seen_state
  AND claim = :seen_claim;

-- name: choose_none
-- Items that wait for another try count as not begun, so that a choice leaves them out.
UPDATE items SET ready_at = 0 WHERE run = :run AND state = 'pending' AND ready_at > 0;

-- name: unmark_items
-- The same by the worker, a slice at a time.
UPDATE items
SET ready_at = 0
WHERE run = :run
  AND seq IN (SELECT seq FROM items WHERE run = :run AND state = 'pending' AND ready_at > 0 LIMIT :limit)
  AND EXISTS (SELECT 1 FROM runs WHERE id = :run AND state = 'running' AND claim = :claim);

-- name: choose_failed
-- A slice of the failed items is to be begun again, with their tries counted anew.
UPDATE items
SET state    = 'pending',
    ready_at = 1,
    tries    = 0
WHERE run = :run
  AND seq IN (SELECT seq FROM items WHERE run = :run AND state = 'failed' LIMIT :limit)
  AND EXISTS (SELECT 1 FROM runs WHERE id = :run AND state = 'running' AND claim = :claim);

-- name: follow_choice
-- The worker has done what the operator's choice wanted done first.
UPDATE runs
SET items_chosen = :next
WHERE id = :run
  AND state = 'running'
  AND claim = :claim
  AND items_chosen = :seen_chosen;

-- name: choose_keys
-- These items are to be begun, failed ones again.
UPDATE items
SET state    = 'pending',
    ready_at = 1,
    tries    = 0
WHERE run = :run
  AND key IN (SELECT value FROM json_each(:keys))
  AND state IN ('failed', 'pending');

-- name: choose_items
-- Which of its items a run that is queued again has to begin.
UPDATE runs
SET failed         = failed - :failed,
    items_chosen   = :chosen,
    items_in_a_row = 0
WHERE id = :run
  AND items_total IS NOT NULL;

-- name: unsettled_run
-- The newest ended batch run of the job with items that were cut, or whose outcome nobody knows.
-- One from before the job was removed and added again counts: what was paid for then was paid for.
SELECT * FROM runs INDEXED BY runs_unsettled
WHERE job = :job
  AND items_total > done + failed
  AND state IN ('partial', 'failed', 'cancelled', 'crashed', 'interrupted')
ORDER BY seq DESC
LIMIT 1;

-- name: list_items
-- A page of a run's items in the order of the list.
SELECT * FROM items WHERE run = :run AND seq > :after_seq ORDER BY seq LIMIT :limit;

-- name: list_items_in_state
-- The same of those in one state; what waits for another try comes after what waits for nothing.
SELECT * FROM items
WHERE run = :run
  AND state = :state
  AND (ready_at, seq) > (:after_ready, :after_seq)
ORDER BY ready_at, seq
LIMIT :limit;
