-- A declared defense is bypassed where it was not before.
-- Once for each defense, hook, path and service: the first crossing without it.
SELECT concat_ws(' ', c.defense, c.hook, c.path, s.service) AS key, concat_ws(' · ', c.defense, c.hook) AS subject,
    format('bypassed on path {}: the hook was crossed without it', c.path) AS message,
    min_by(c.trace_id, s.start_ns) AS trace_id, make_timestamp(min(s.start_ns) // 1000) AS seen_at
FROM coverage c JOIN span_data s USING (trace_id, span_id)
WHERE NOT c.ran AND c.run_id IS NULL AND c.trace_id IN (FROM fresh_traces)
GROUP BY c.defense, c.hook, c.path, s.service
