-- Which stages fail, with what?
-- One row a stage, path and kind of error, the most frequent first, with the last trace that shows it.
SELECT stage, framework, path, error_type, count(*) AS failures, max(start_time) AS last_seen,
    max_by(trace_id, start_time) AS a_trace
FROM stages WHERE status = 'ERROR'
GROUP BY ALL
ORDER BY failures DESC, 1, 2, 3, 4
