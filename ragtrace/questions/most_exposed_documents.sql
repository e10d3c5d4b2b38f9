-- Which documents does most of reach the answers?
-- :words INTEGER 10 a longer run, in words, is a quote
-- :limit INTEGER 20 rows of the answer
-- One row a document: in how many answers it is quoted or gives away an entity that was not in the question, of those
-- that could have read it and were measured, its longest run, and what share of an answer stood in it at most.
SELECT document_id, count(*) FILTER (longest_run > $words) AS quoting,
    count(*) FILTER (entities_leaked > 0) AS with_entities,
    count(*) AS answers, max(longest_run) AS longest_run,
    round(max(containment), 4) AS containment, max(entities_leaked) AS entities_leaked
FROM (
    SELECT document_id, max(longest_run) AS longest_run, max(containment) AS containment,
        max(entities_leaked) AS entities_leaked
    FROM exposure WHERE longest_run IS NOT NULL AND NOT nested
    GROUP BY document_id, trace_id, span_id  -- a document may come in several pieces
)
GROUP BY document_id
ORDER BY quoting DESC, with_entities DESC, longest_run DESC, document_id
LIMIT $limit
