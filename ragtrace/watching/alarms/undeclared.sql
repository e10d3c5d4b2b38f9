-- A defense that requests used to declare is gone from them.
-- Once for each such end: the requests since the last that declared it would all lack it by chance in under one of 1,000
-- cases. A deploy without the defense looks like this, and `coverage` has no row for what nobody declares.
WITH asked AS (
    SELECT r.trace_id, r.request_id, s.service, s.start_ns, s.resource->>'service.version' AS version
    FROM roots r JOIN span_data s ON s.trace_id = r.trace_id AND s.span_id = r.request_id WHERE r.run_id IS NULL
), named AS (
    SELECT DISTINCT defense, service FROM claims c JOIN asked a USING (trace_id, request_id)
), held AS (
    SELECT n.defense, a.*, c.defense IS NOT NULL AS declared
    FROM asked a JOIN named n USING (service)
    LEFT JOIN (SELECT DISTINCT trace_id, request_id, defense FROM claims) c
        ON c.trace_id = a.trace_id AND c.request_id = a.request_id AND c.defense = n.defense
), last AS (
    SELECT *, max(start_ns) FILTER (declared) OVER (PARTITION BY defense, service) AS last_ns FROM held
), told AS (
    SELECT defense, service, last_ns, count(*) FILTER (start_ns <= last_ns) AS before,
        count(*) FILTER (declared) AS declared, count(*) FILTER (start_ns > last_ns) AS since,
        arg_min(trace_id, start_ns) FILTER (start_ns > last_ns) AS trace_id
    FROM last GROUP BY ALL
)
SELECT concat_ws(' ', defense, service, last_ns) AS key, defense AS subject,
    format('declared by {} of {} requests, and by none of the {} since', declared, before, since) AS message,
    trace_id, make_timestamp(last_ns // 1000) AS seen_at
FROM told WHERE since >= 10 AND pow(1 - declared / before, since) < 0.001
