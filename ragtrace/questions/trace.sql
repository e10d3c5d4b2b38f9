-- What happened in one trace?
-- :trace TEXT NULL the trace id; without, the latest that has a stage
-- One row a span, in the order of its start: how deep it lies, what it is, how long it took, what defenses did there.
WITH RECURSIVE chosen AS (
    SELECT coalesce($trace, max_by(trace_id, start_time)) AS trace_id FROM stages
), own AS (
    SELECT s.* FROM spans s JOIN chosen USING (trace_id)
), deep AS (
    SELECT span_id, 0 AS depth FROM own
    WHERE parent_span_id IS NULL OR parent_span_id NOT IN (SELECT span_id FROM own)
    UNION
    SELECT o.span_id, d.depth + 1 FROM deep d JOIN own o ON o.parent_span_id = d.span_id WHERE d.depth < 100
), did AS (
    SELECT span_id, string_agg(format('{} · {} · {}', defense, hook, status), ', ' ORDER BY hook, defense) AS defenses
    FROM effects JOIN chosen USING (trace_id) GROUP BY span_id
)
SELECT repeat('  ', min(depth)) || any_value(name) AS span, any_value(start_time) AS start_time,
    round(any_value(duration_ms), 3) AS duration_ms, any_value(status) AS status, any_value(defenses) AS defenses, span_id
FROM own JOIN deep USING (span_id) LEFT JOIN did USING (span_id)
GROUP BY span_id
ORDER BY start_time, min(depth), span_id
