-- Which documents are retrieved most?
-- :limit INTEGER 20 rows of the answer
-- One row a document: in how many requests it was retrieved, in how many prompts it stood, and its mean rank.
SELECT document_id, count(DISTINCT trace_id) FILTER (phase = 'retrieved') AS retrieved,
    count(DISTINCT trace_id) FILTER (phase = 'in_prompt') AS in_prompts,
    round(avg(rank) FILTER (phase = 'retrieved'), 2) AS mean_rank
FROM documents
GROUP BY document_id
ORDER BY retrieved DESC, in_prompts DESC, document_id
LIMIT $limit
