-- To whom is most given away?
-- :words INTEGER 10 a longer run, in words, is a quote
-- :limit INTEGER 20 rows of the answer
-- One row a user, or a session without one: answers measured, those that quote a document, different documents quoted,
-- and entities given away that were not in the question. Audits are left out.
SELECT coalesce(user_id, session) AS who, count(DISTINCT span_id) AS answers,
    count(DISTINCT span_id) FILTER (longest_run > $words) AS quoting,
    count(DISTINCT document_id) FILTER (longest_run > $words) AS documents_quoted,
    sum(entities_leaked)::BIGINT AS entities_leaked, max(longest_run) AS longest_run
FROM exposure
WHERE longest_run IS NOT NULL AND NOT nested AND run_id IS NULL
GROUP BY who
ORDER BY quoting DESC, entities_leaked DESC, longest_run DESC, who
LIMIT $limit
