-- A defense that used to change something has stopped.
-- Once for each such stop: the runs since its last change would all be without one by chance in under one of 1,000 cases.
WITH runs AS (
    SELECT e.defense, e.hook, s.service, e.trace_id, s.start_ns, e.status = 'changed' AS changed,
        s.resource->>'service.version' AS version
    FROM effects e JOIN span_data s USING (trace_id, span_id)
    WHERE e.run_id IS NULL AND e.status <> 'error'
), last AS (
    SELECT *, max(start_ns) FILTER (changed) OVER (PARTITION BY defense, hook, service) AS last_ns FROM runs
), told AS (
    SELECT defense, hook, service, last_ns, count(*) FILTER (start_ns <= last_ns) AS before,
        count(*) FILTER (changed) AS changes, count(*) FILTER (start_ns > last_ns) AS since,
        arg_min(trace_id, start_ns) FILTER (start_ns > last_ns) AS trace_id,
        arg_max(version, start_ns) FILTER (start_ns <= last_ns) AS old, arg_max(version, start_ns) AS new
    FROM last GROUP BY ALL
)
SELECT concat_ws(' ', defense, hook, service, last_ns) AS key, concat_ws(' · ', defense, hook) AS subject,
    format('changed something in {} of {} runs, and in none of the {} since{}', changes, before, since,
        CASE WHEN old IS DISTINCT FROM new
            THEN format(' (service version {}, now {})', coalesce(old, 'unknown'), coalesce(new, 'unknown')) ELSE '' END
    ) AS message,
    trace_id, make_timestamp(last_ns // 1000) AS seen_at
FROM told WHERE since >= 10 AND pow(1 - changes / before, since) < 0.001
