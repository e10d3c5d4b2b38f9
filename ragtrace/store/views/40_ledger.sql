-- The run-time ledger: what each run of each defense did.
CREATE OR REPLACE VIEW effects AS
SELECT s.trace_id, s.span_id, e.defense, e.hook, e.status,
    coalesce(e.ids_changed, false) AS ids_changed, coalesce(e.order_changed, false) AS order_changed,
    coalesce(e.scores_changed, false) AS scores_changed, coalesce(e.text_changed, false) AS text_changed,
    e.documents_before, e.documents_after, e.chars_before, e.chars_after, s.path, s.arm,
    coalesce(e.buffered, false) AS buffered, e.error, e.duration_us, s.run_id, s.probe_id, s.framework
FROM (
    SELECT *, unnest(try(from_json(effects,
        '[{"defense":"VARCHAR","hook":"VARCHAR","status":"VARCHAR","ids_changed":"BOOLEAN","order_changed":"BOOLEAN","scores_changed":"BOOLEAN","text_changed":"BOOLEAN","documents_before":"BIGINT","documents_after":"BIGINT","chars_before":"BIGINT","chars_after":"BIGINT","buffered":"BOOLEAN","error":"VARCHAR","duration_us":"BIGINT"}]'
    ))) AS e
    FROM own_spans
) s;

-- What each request declared: one row for each defense and hook that it claims.
CREATE OR REPLACE VIEW claims AS
SELECT trace_id, request_id, path, run_id, arm, c.key AS defense, unnest(c.value) AS hook
FROM (SELECT *, unnest(map_entries(try(declared::JSON::MAP(VARCHAR, VARCHAR[])))) AS c FROM roots);

-- One row for each declared defense and crossed hook of a request; `ran = false` is a bypass.
-- A stage nested in another is no crossing of its own. What ran beside the request, in the same trace, counts for it.
CREATE OR REPLACE VIEW coverage AS
WITH crossed AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, r.request_id, unnest(CASE s.stage WHEN 'retrieval' THEN ['query', 'retrieval', 'content']
        WHEN 'generation' THEN ['prompt', 'response'] ELSE [] END) AS hook
    FROM own_spans s JOIN requests r USING (trace_id, span_id) WHERE NOT s.nested
), ran AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, r.request_id, e.defense, e.hook FROM effects e LEFT JOIN requests r USING (trace_id, span_id)
)
SELECT c.trace_id, c.defense, c.hook, c.path, i.defense IS NOT NULL OR b.defense IS NOT NULL AS ran,
    c.run_id, c.arm, c.request_id
FROM claims c JOIN crossed USING (trace_id, request_id, hook)
LEFT JOIN ran i USING (trace_id, request_id, defense, hook)
LEFT JOIN (SELECT trace_id, defense, hook FROM ran WHERE request_id IS NULL) b USING (trace_id, defense, hook);
