-- The run-time ledger: what each run of each defense did.
CREATE OR REPLACE VIEW effects AS
SELECT s.trace_id, s.span_id, e.defense, e.hook, e.status,
    coalesce(e.ids_changed, false) AS ids_changed, coalesce(e.order_changed, false) AS order_changed,
    coalesce(e.scores_changed, false) AS scores_changed, coalesce(e.text_changed, false) AS text_changed,
    e.documents_before, e.documents_after, e.chars_before, e.chars_after, s.path, s.arm,
    coalesce(e.buffered, false) AS buffered, e.error, e.duration_us, s.run_id, s.probe_id, s.framework
FROM own_spans s, unnest(try(from_json(s.attributes->>'ragtrace.effects',
    '[{"defense":"VARCHAR","hook":"VARCHAR","status":"VARCHAR","ids_changed":"BOOLEAN","order_changed":"BOOLEAN","scores_changed":"BOOLEAN","text_changed":"BOOLEAN","documents_before":"BIGINT","documents_after":"BIGINT","chars_before":"BIGINT","chars_after":"BIGINT","buffered":"BOOLEAN","error":"VARCHAR","duration_us":"BIGINT"}]')))
    AS u(e);

-- One row for each declared defense and crossed hook of a trace; `ran = false` is a bypass.
-- A stage nested in another is no crossing of its own.
CREATE OR REPLACE VIEW coverage AS
WITH claims AS (
    SELECT s.trace_id, s.path, s.run_id, s.arm, d.defense,
        unnest(from_json(s.attributes->>'ragtrace.declared'->d.defense, '["VARCHAR"]')) AS hook
    FROM own_spans s, unnest(json_keys(s.attributes->>'ragtrace.declared')) AS d(defense)
    WHERE s.attributes->>'ragtrace.declared' IS NOT NULL
), crossings AS (
    SELECT DISTINCT trace_id, path, unnest(CASE stage WHEN 'retrieval' THEN ['query', 'retrieval', 'content']
        WHEN 'generation' THEN ['prompt', 'response'] ELSE [] END) AS hook
    FROM own_spans WHERE NOT nested AND stage IS NOT NULL
)
SELECT DISTINCT c.trace_id, c.defense, c.hook, c.path,
    EXISTS (SELECT 1 FROM effects e WHERE e.trace_id = c.trace_id AND e.defense = c.defense AND e.hook = c.hook) AS ran,
    c.run_id, c.arm
FROM claims c JOIN crossings x ON x.trace_id = c.trace_id AND x.hook = c.hook AND x.path = c.path;
