-- What do the models get to do?
-- One row a day and model: calls, tokens read and written, failures.
SELECT start_time::DATE AS day, model, count(*) AS calls, sum(prompt_tokens)::BIGINT AS prompt_tokens,
    sum(completion_tokens)::BIGINT AS completion_tokens, count(*) FILTER (status = 'ERROR') AS failures
FROM generations
GROUP BY ALL
ORDER BY day DESC, calls DESC, model
