-- name: begin
-- The writing lock is taken at once: a read that later becomes a write would fail where it matters.
BEGIN IMMEDIATE;

-- name: commit
-- Everything since `begin` is durable.
COMMIT;

-- name: rollback
-- Nothing since `begin` happened.
ROLLBACK;

-- name: begin_read
-- What is read until `end_read` was all there at one moment.
BEGIN;

-- name: end_read
-- Reads see what is newest again.
ROLLBACK;

-- name: savepoint
-- What follows stands or falls alone.
SAVEPOINT request;

-- name: release_savepoint
-- What stands since the savepoint joins the transaction.
RELEASE request;

-- name: rollback_to_savepoint
-- Nothing since the savepoint happened.
ROLLBACK TO request;

-- name: next_revision
-- The last of so many numbers from the store-wide counter, never used before.
INSERT INTO meta (name, value)
VALUES ('revision', :count)
ON CONFLICT (name) DO UPDATE SET value = value + :count
RETURNING value;

-- name: read_meta
-- One value of the store's own notes.
SELECT value FROM meta WHERE name = :name;

-- name: write_meta
-- One value of the store's own notes, set.
INSERT INTO meta (name, value)
VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: record_audit
-- Who did what, when.
INSERT INTO audit (at, verb, job, run, uid, gid, pid, command, detail)
SELECT :at,
       :verb,
       json_extract(value, '$[0]'),
       json_extract(value, '$[1]'),
       json_extract(value, '$[2]'),
       json_extract(value, '$[3]'),
       json_extract(value, '$[4]'),
       json_extract(value, '$[5]'),
       json_extract(value, '$[6]')
FROM json_each(:entries);

-- name: record_change
-- The rows of an operator's verbs in the sequence that other daemons poll.
INSERT INTO changes (kind, id)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:changes);
