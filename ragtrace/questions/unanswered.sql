-- Where did a model answer without anything retrieved?
-- One row a path and framework: generations whose request found no document (or has no retrieval), and their share.
WITH found AS (SELECT DISTINCT trace_id FROM documents WHERE phase = 'retrieved')
SELECT path, framework, count(*) FILTER (f.trace_id IS NULL) AS without, count(*) AS generations,
    round(count(*) FILTER (f.trace_id IS NULL) / count(*), 4) AS share
FROM generations g LEFT JOIN found f USING (trace_id)
WHERE NOT nested
GROUP BY ALL
ORDER BY without DESC, 1, 2
