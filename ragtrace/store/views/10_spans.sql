-- Every span, of ours or not.
CREATE OR REPLACE VIEW spans AS
SELECT trace_id, span_id, parent_span_id, name, kind,
    make_timestamp(start_ns // 1000) AS start_time, make_timestamp(end_ns // 1000) AS end_time,
    (end_ns - start_ns) / 1e6 AS duration_ms,
    status, status_message, service, scope, dialect, attributes, events, resource
FROM span_data;

-- Spans of ours with the attributes that all of them carry.
CREATE OR REPLACE VIEW own_spans AS
SELECT trace_id, span_id, parent_span_id, start_ns, end_ns, status, stage, attributes,
    attributes->>'ragtrace.framework' AS framework,
    attributes->>'ragtrace.path' AS path,
    attributes->>'ragtrace.run_id' AS run_id,
    attributes->>'ragtrace.probe_id' AS probe_id,
    attributes->>'ragtrace.arm' AS arm,
    coalesce((attributes->>'ragtrace.nested')::BOOLEAN, false) AS nested
FROM span_data WHERE dialect = 'ragtrace';

CREATE OR REPLACE VIEW stages AS
SELECT trace_id, span_id, stage, framework, path,
    coalesce(attributes->>'gen_ai.retrieval.query.text', attributes->>'ragtrace.query') AS query,
    attributes->>'gen_ai.request.model' AS model,
    run_id, probe_id, arm,
    make_timestamp(start_ns // 1000) AS start_time, (end_ns - start_ns) / 1e6 AS duration_ms, status,
    nested, attributes->>'error.type' AS error_type,
    attributes->>'ragtrace.query.after_defense' AS query_after_defense
FROM own_spans WHERE stage IS NOT NULL;
