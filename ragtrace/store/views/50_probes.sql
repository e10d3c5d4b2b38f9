-- What was asked on purpose, with its ground truth.
CREATE OR REPLACE VIEW probes AS
SELECT run_id, probe_id, arm, p.attack, p.corpus, p.seed, p.query, p.target_id, p.target_text, p.is_member, p.canary,
    trace_id, status
FROM (
    SELECT run_id, probe_id, arm, trace_id, status, from_json(attributes->>'ragtrace.probe',
        '{"attack":"VARCHAR","corpus":"VARCHAR","seed":"BIGINT","query":"VARCHAR","target_id":"VARCHAR","target_text":"VARCHAR","is_member":"BOOLEAN","canary":"VARCHAR"}') AS p
    FROM own_spans WHERE attributes->>'ragtrace.probe' IS NOT NULL
);

-- What each run planted.
CREATE OR REPLACE VIEW canaries AS
SELECT DISTINCT s.run_id, c.text AS canary, c.family, c.document_id
FROM own_spans s, unnest(from_json((s.attributes->>'ragtrace.run')->'canaries',
    '[{"text":"VARCHAR","family":"VARCHAR","document_id":"VARCHAR"}]')) AS u(c)
WHERE s.attributes->>'ragtrace.run' IS NOT NULL;

-- Where a canary turned up, by exact match, in any text that was recorded.
CREATE OR REPLACE VIEW canary_hits AS
WITH texts AS (
    SELECT trace_id, span_id, run_id, probe_id, arm, 'query' AS channel, attributes->>'gen_ai.retrieval.query.text' AS text
    FROM own_spans WHERE stage = 'retrieval'
    UNION ALL
    SELECT d.trace_id, d.span_id, d.run_id, s.probe_id, d.arm,
        CASE d.phase WHEN 'retrieved' THEN 'retrieval' ELSE 'content' END, d.content
    FROM documents d JOIN own_spans s USING (trace_id, span_id) WHERE d.phase IN ('retrieved', 'after_defense')
    UNION ALL
    SELECT trace_id, span_id, run_id, probe_id, arm, unnest(['prompt', 'response']), unnest([prompt, response])
    FROM generations
)
SELECT DISTINCT t.trace_id, t.span_id, c.canary, c.family, t.channel, c.run_id, t.probe_id, t.arm, c.document_id
FROM texts t JOIN canaries c ON (t.run_id IS NULL OR t.run_id = c.run_id) AND contains(t.text, c.canary);

CREATE OR REPLACE VIEW entities AS
SELECT e.trace_id, e.span_id, e.type, e.text, e.in_query, e.in_documents, s.run_id, s.probe_id, s.arm
FROM entity_data e LEFT JOIN own_spans s USING (trace_id, span_id);

CREATE OR REPLACE VIEW scores AS SELECT run_id, probe_id, arm, attack, metric, value FROM score_data;

CREATE OR REPLACE VIEW results AS
SELECT run_id, arm, defense, attack, corpus, metric, channel, value, ci_low, ci_high, n, interpretable, reason, signature
FROM result_data;
