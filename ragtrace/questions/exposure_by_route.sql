-- By which route does most get out?
-- :words INTEGER 10 a longer run, in words, is a quote
-- One row a service, http.route and path: answers measured, those that quote a document, their share, those that give
-- away an entity that was not in the question, and the longest quote.
WITH each_answer AS (
    SELECT trace_id, span_id, service, route, path, max(longest_run) AS longest, max(entities_leaked) AS entities
    FROM exposure WHERE longest_run IS NOT NULL AND NOT nested GROUP BY ALL
)
SELECT service, route, path, count(*) AS answers, count(*) FILTER (longest > $words) AS quoting,
    round(quoting / answers, 4) AS share, count(*) FILTER (entities > 0) AS with_entities, max(longest) AS longest_run
FROM each_answer
GROUP BY service, route, path
ORDER BY share DESC, with_entities DESC, service, route, path
