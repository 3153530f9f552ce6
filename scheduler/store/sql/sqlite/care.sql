-- name: table_names
-- Every table of the schema, for the check of the file.
SELECT name
FROM sqlite_schema
WHERE type = 'table'
  AND name NOT LIKE 'sqlite_%'
ORDER BY rootpage;
