-- How much does each defense take away?
-- One row a defense and hook that changed something: the share of documents and characters that were left.
SELECT defense, hook, count(*) AS changes,
    round(sum(documents_after) / nullif(sum(documents_before), 0), 4) AS documents_left,
    round(sum(chars_after) / nullif(sum(chars_before), 0), 4) AS characters_left,
    count(*) FILTER (text_changed) AS text_changed, count(*) FILTER (order_changed) AS order_changed,
    count(*) FILTER (ids_changed) AS ids_changed, count(*) FILTER (scores_changed) AS scores_changed
FROM effects WHERE status = 'changed'
GROUP BY ALL
ORDER BY ALL
