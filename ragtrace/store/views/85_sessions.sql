-- What each span says of whose request it is, and of what was asked. Ids stand on spans of ours, or on any span of
-- another instrumentation; questions on stages that cross a hook.
CREATE OR REPLACE VIEW session_spans AS
SELECT trace_id, run_id, stage, status, start_ns, end_ns, conversation, session_id, user_id,
    CASE WHEN stage IN ('retrieval', 'context', 'generation') AND (dialect = 'ragtrace' OR duplicate_of IS NULL)
        AND NOT coalesce(nested, false) THEN coalesce(query, asked) END AS query
FROM span_data;

-- Whose each request of production traffic is.
CREATE OR REPLACE VIEW session_traces AS
WITH whose AS (
    SELECT trace_id, min(start_ns) AS start_ns, greatest(max(start_ns), max(end_ns)) AS end_ns,
        coalesce(bool_or(stage IS NOT NULL AND status = 'ERROR'), false) AS failed,
        nullif(min(conversation), '') AS conversation, nullif(min(session_id), '') AS session_id,
        nullif(min(user_id), '') AS user_id
    FROM session_spans GROUP BY trace_id HAVING max(run_id) IS NULL AND bool_or(stage IN ('retrieval', 'generation'))
)
SELECT trace_id, concat_ws(' ', kind, CASE kind WHEN 'conversation' THEN conversation WHEN 'session' THEN session_id
        WHEN 'user' THEN user_id || ' ' || strftime(make_timestamp(start_ns // 1000), '%Y-%m-%d') ELSE trace_id END
    ) AS session, kind, conversation, session_id, user_id, start_ns, end_ns, failed
FROM (
    SELECT *, CASE WHEN conversation IS NOT NULL THEN 'conversation' WHEN session_id IS NOT NULL THEN 'session'
        WHEN user_id IS NOT NULL AND start_ns IS NOT NULL THEN 'user' ELSE 'trace' END AS kind
    FROM whose
);

-- What was asked in each trace, each question once: as it came to the model, else as the retriever was asked.
CREATE OR REPLACE VIEW trace_questions AS
SELECT trace_id, query, make_timestamp(if(is_answered, answered_ns, first_ns) // 1000) AS asked_at
FROM (
    SELECT trace_id, query, min(start_ns) AS first_ns, min(start_ns) FILTER (stage = 'generation') AS answered_ns,
        count(*) FILTER (stage = 'generation') AS answers, sum(answers) OVER (PARTITION BY trace_id) > 0 AS is_answered
    FROM session_spans WHERE query IS NOT NULL GROUP BY trace_id, query
) WHERE NOT is_answered OR answers > 0;

-- One row a session of production traffic: what SQL can say of it. Whether it looks like an attack is in `suspicions`.
-- A trace without any question has one row in `asked` too, so the rows of a session are its requests.
CREATE OR REPLACE VIEW sessions AS
WITH mine AS MATERIALIZED (
    FROM session_traces
), whole AS (
    SELECT session, any_value(kind) AS kind, min(user_id) AS user_id, count(*) FILTER (failed) AS errors,
        make_timestamp(min(start_ns) // 1000) AS first_time, make_timestamp(max(end_ns) // 1000) AS last_time,
        arg_min(trace_id, (start_ns, trace_id)) AS first_trace, arg_max(trace_id, (start_ns, trace_id)) AS last_trace,
        count(*) AS traces
    FROM mine GROUP BY session
), asked AS (
    SELECT session, count(*) AS requests, nullif(count(DISTINCT lower(trim(query))), 0) AS questions,
        count(query) - questions AS repeated
    FROM mine LEFT JOIN trace_questions USING (trace_id) GROUP BY session
), retrieved AS (
    SELECT session, count(DISTINCT doc.id) AS documents, count(*) AS retrieved
    FROM (SELECT session, unnest(found) AS doc FROM mine JOIN retrieved_ids USING (trace_id)) GROUP BY session
)
SELECT w.session, kind, user_id, first_time, last_time, requests, questions, repeated, documents, retrieved, errors,
    traces, first_trace, last_trace
FROM whole w JOIN asked USING (session) LEFT JOIN retrieved r ON r.session = w.session;

-- What `ragtrace detect` says of the sessions it has looked at.
CREATE OR REPLACE VIEW suspicions AS
WITH span AS (
    SELECT session, arg_min(trace_id, (start_ns, trace_id)) AS first_trace,
        arg_max(trace_id, (start_ns, trace_id)) AS last_trace,
        make_timestamp(min(start_ns) // 1000) AS first_time, make_timestamp(max(start_ns) // 1000) AS last_time
    FROM session_trace_data GROUP BY session
)
SELECT d.session, d.score, d.score >= d.threshold AS suspicious, d.reasons, d.signals, d.requests,
    s.first_trace, s.last_trace, s.first_time, s.last_time, d.trace_id, d.threshold
FROM detection_data d JOIN span s USING (session);
