-- How long does each stage take?
-- One row a stage, framework, path and model: calls, and median, 95th and 99th percentile in milliseconds.
SELECT stage, framework, path, model, count(*) AS calls,
    round(quantile_cont(duration_ms, 0.5), 3) AS median_ms, round(quantile_cont(duration_ms, 0.95), 3) AS p95_ms,
    round(quantile_cont(duration_ms, 0.99), 3) AS p99_ms
FROM stages
GROUP BY ALL
ORDER BY p95_ms DESC, 1, 2, 3, 4
