-- A planted canary stands in an answer.
-- Once for each canary and trace; probes of audits ask for them on purpose and raise none.
SELECT concat_ws(' ', canary, h.trace_id) AS key, canary AS subject,
    format('canary ({}) in an answer on path {}', h.family, coalesce(s.path, 'unknown')) AS message,
    h.trace_id, s.start_time AS seen_at
FROM canary_hits h JOIN stages s USING (trace_id, span_id)
WHERE h.channel = 'response' AND s.run_id IS NULL AND h.trace_id IN (FROM fresh_traces)
