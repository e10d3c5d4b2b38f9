-- How long does each defense take?
-- One row a defense and hook: runs, and the median, 95th percentile and maximum of one run, in milliseconds.
SELECT defense, hook, count(*) AS runs,
    round(quantile_cont(duration_us, 0.5) / 1000, 3) AS median_ms,
    round(quantile_cont(duration_us, 0.95) / 1000, 3) AS p95_ms, round(max(duration_us) / 1000, 3) AS max_ms,
    count(*) FILTER (status = 'error') AS errors
FROM effects WHERE duration_us IS NOT NULL
GROUP BY ALL
ORDER BY p95_ms DESC, 1, 2
