-- Which defenses raise?
-- One row a defense, hook, path and error: a defense of ragtrace lets the request go on (it fails open) unless it says
-- on_error="raise".
SELECT defense, hook, path, error, count(*) AS failures, max_by(trace_id, trace_id) AS a_trace
FROM effects WHERE status = 'error'
GROUP BY ALL
ORDER BY failures DESC, 1, 2, 3, 4
