-- A defense raises, and the request goes on without it.
-- Once for each defense, hook, kind of error and service.
SELECT concat_ws(' ', e.defense, e.hook, e.error, s.service) AS key, concat_ws(' · ', e.defense, e.hook) AS subject,
    format('raised {}', coalesce(e.error, 'an error')) AS message,
    min_by(e.trace_id, s.start_ns) AS trace_id, make_timestamp(min(s.start_ns) // 1000) AS seen_at
FROM effects e JOIN span_data s USING (trace_id, span_id)
WHERE e.status = 'error' AND e.run_id IS NULL AND e.trace_id IN (FROM fresh_traces)
GROUP BY e.defense, e.hook, e.error, s.service
