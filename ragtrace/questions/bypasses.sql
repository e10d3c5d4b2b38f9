-- Which calls went round a defense that they declare?
-- One row a defense, hook, path and framework, the most frequent first; share is of the crossings of that hook there.
SELECT defense, hook, c.path, framework, count(*) FILTER (NOT ran) AS bypassed, count(*) AS crossings,
    round(count(*) FILTER (NOT ran) / count(*), 4) AS share,
    max(start_time) FILTER (NOT ran) AS last_seen, max_by(c.trace_id, start_time) FILTER (NOT ran) AS a_trace
FROM coverage c JOIN stages s USING (trace_id, span_id)
GROUP BY ALL
HAVING bypassed > 0
ORDER BY bypassed DESC, 1, 2, 3, 4
