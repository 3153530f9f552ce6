-- name: recorded_answer
-- What was answered to a request under this key.
SELECT request, status, headers, body FROM answers
WHERE uid = :uid
  AND key = :key
  AND at > :after;

-- name: record_answer
-- The answer of a request under a key; one that has expired gives its place.
INSERT OR REPLACE INTO answers (uid, key, request, at, status, headers, body)
VALUES (:uid, :key, :request, :now, :status, :headers, :body);

-- name: forget_answers
-- Answers that nobody asks for again, a bounded number at a time.
DELETE FROM answers
WHERE (uid, key) IN (SELECT uid, key FROM answers WHERE at <= :before ORDER BY at LIMIT 100);
