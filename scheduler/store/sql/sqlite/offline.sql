-- Questions of schedctl to a store that may have no daemon.

-- name: unfinished_states
-- Every run that has not ended, with its state.
SELECT id, state
FROM runs
WHERE state IN ('queued', 'running', 'recovering', 'waiting', 'held');
