-- Every span, of ours or not.
CREATE OR REPLACE VIEW spans AS
SELECT trace_id, span_id, parent_span_id, name, kind,
    make_timestamp(start_ns // 1000) AS start_time, make_timestamp(end_ns // 1000) AS end_time,
    (end_ns - start_ns) / 1e6 AS duration_ms,
    status, status_message, service, scope, dialect, attributes, events, resource,
    duplicate_of, attributes->>'ragtrace.truncated' AS truncated
FROM span_data;

-- Spans of ours with the attributes that all of them carry.
CREATE OR REPLACE VIEW own_spans AS
SELECT trace_id, span_id, parent_span_id, start_ns, end_ns, status, framework, path, run_id, probe_id, arm,
    stage, nested, declared, effects, attributes, outgoing,
    if(stage IS NULL AND path IS NOT NULL, span_id, request_id) AS request_id
FROM span_data WHERE dialect = 'ragtrace';

-- These, and the stages of other instrumentations that no span kept here tells better.
CREATE OR REPLACE VIEW staged_spans AS
SELECT trace_id, span_id, parent_span_id, start_ns, end_ns, status, framework, path, run_id, probe_id, arm,
    stage, nested, attributes, dialect, query, asked, outgoing
FROM span_data WHERE dialect = 'ragtrace' OR (stage IS NOT NULL AND duplicate_of IS NULL);

CREATE OR REPLACE VIEW stages AS
SELECT trace_id, span_id, stage, framework, path, coalesce(query, asked) AS query,
    attributes->>'gen_ai.request.model' AS model,
    run_id, probe_id, arm,
    make_timestamp(start_ns // 1000) AS start_time, (end_ns - start_ns) / 1e6 AS duration_ms, status,
    nested, attributes->>'error.type' AS error_type,
    attributes->>'ragtrace.query.after_defense' AS query_after_defense, dialect
FROM staged_spans WHERE stage IN ('retrieval', 'context', 'generation');

-- The roots of requests: the caller's outermost calls.
CREATE OR REPLACE VIEW roots AS
SELECT trace_id, span_id AS request_id, path, run_id, arm, declared
FROM own_spans WHERE stage IS NULL AND path IS NOT NULL;

-- The request that each span of ours belongs to, where the merge has not found it (ragtrace/store/requests.py): the nearest
-- root at or above it. Spans of others may lie between. What is found already, and asked for, decides how much is read.
-- UNION, not UNION ALL: a span that is its own ancestor must not keep us here for ever.
CREATE OR REPLACE VIEW late_requests AS
WITH RECURSIVE waiting AS NOT MATERIALIZED (
    SELECT trace_id, span_id, parent_span_id AS above FROM span_data
    WHERE request_id IS NULL AND parent_span_id IS NOT NULL AND dialect = 'ragtrace'
        AND (stage IS NOT NULL OR path IS NULL)
), links AS MATERIALIZED (  -- of few traces, mostly of none
    SELECT trace_id, span_id, parent_span_id FROM span_data SEMI JOIN waiting USING (trace_id)
    WHERE dialect <> 'ragtrace' OR stage IS NOT NULL OR path IS NULL
), up AS (
    SELECT trace_id, span_id, above FROM waiting
    UNION
    SELECT u.trace_id, u.span_id, d.parent_span_id
    FROM up u JOIN links d ON d.trace_id = u.trace_id AND d.span_id = u.above
)
SELECT u.trace_id, u.span_id, u.above AS request_id
FROM up u JOIN roots r ON r.trace_id = u.trace_id AND r.request_id = u.above;

-- The same of all.
CREATE OR REPLACE VIEW requests AS
FROM late_requests
UNION ALL
SELECT trace_id, span_id, request_id FROM own_spans WHERE request_id <> '';
