-- What share of the answers quotes a document?
-- :words INTEGER 10 a longer run, in words, is a quote
-- One row a day, service and path: answers that quote more than so many words, of those that could have read a document
-- and were measured, their share, and the longest quote; and the answers of which nothing was measured yet.
WITH each_answer AS (
    SELECT trace_id, span_id, day, service, path, max(longest_run) AS longest, bool_or(measured) AS measured
    FROM exposure WHERE NOT nested GROUP BY ALL
)
SELECT day, service, path, count(*) FILTER (longest > $words) AS quoting, count(longest) AS answers,
    round(quoting / nullif(answers, 0), 4) AS share, max(longest) AS longest_run,
    count(*) FILTER (NOT measured) AS unmeasured
FROM each_answer
GROUP BY day, service, path
HAVING answers > 0 OR unmeasured > 0
ORDER BY day DESC, share DESC NULLS LAST, service, path
