-- How often do answers carry names and addresses that stood in the documents and not in the question?
-- One row a day, path and type: generations, those with such an entity, and their share. Needs texts, or statistics of them.
WITH leaked AS (
    SELECT DISTINCT trace_id, span_id, type FROM entities WHERE in_documents AND NOT in_query
), asked AS (
    SELECT trace_id, span_id, start_time::DATE AS day, path FROM generations WHERE NOT nested AND entities_readable
), counted AS (
    SELECT day, path, count(*) AS generations FROM asked GROUP BY ALL
)
SELECT day, path, type, count(*) AS with_entity, any_value(generations) AS generations,
    round(count(*) / any_value(generations), 4) AS share
FROM asked JOIN leaked USING (trace_id, span_id) JOIN counted USING (day, path)
GROUP BY ALL
ORDER BY day DESC, share DESC, path, type
