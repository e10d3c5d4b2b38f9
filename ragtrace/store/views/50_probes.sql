-- What was asked on purpose, with its ground truth: one row each time a probe was sent.
CREATE OR REPLACE VIEW probes AS
SELECT run_id, probe_id, arm, p.attack, p.corpus, p.seed, p.query, p.target_id, p.target_text, p.is_member, p.canary,
    p.detail, trace_id, status
FROM (
    SELECT run_id, probe_id, arm, trace_id, status, try(from_json(attributes->>'ragtrace.probe',
        '{"attack":"VARCHAR","corpus":"VARCHAR","seed":"BIGINT","query":"VARCHAR","target_id":"VARCHAR","target_text":"VARCHAR","is_member":"BOOLEAN","canary":"VARCHAR","detail":"JSON"}')) AS p
    FROM own_spans WHERE stage IS NULL AND probe_id IS NOT NULL AND (attributes->>'ragtrace.probe') IS NOT NULL
);

-- What each run planted.
CREATE OR REPLACE VIEW canaries AS
SELECT DISTINCT run_id, c.text AS canary, c.family, c.document_id
FROM (
    SELECT run_id, unnest(try(from_json((attributes->>'ragtrace.run')->'canaries',
        '[{"text":"VARCHAR","family":"VARCHAR","document_id":"VARCHAR"}]'))) AS c
    FROM own_spans WHERE stage IS NULL AND run_id IS NOT NULL
);

-- Where a canary turned up, by exact match, in any text that was recorded. Traffic outside of audits is searched for
-- every canary, an audit's own for those that it planted.
CREATE OR REPLACE VIEW canary_hits AS
WITH texts AS NOT MATERIALIZED (
    SELECT trace_id, span_id, 'query' AS channel, query AS text FROM stages WHERE stage = 'retrieval'
    UNION ALL
    SELECT trace_id, span_id, CASE phase WHEN 'retrieved' THEN 'retrieval' ELSE 'content' END, content
    FROM documents WHERE phase <> 'in_prompt'
    UNION ALL
    SELECT trace_id, span_id, unnest(['prompt', 'response']), unnest([prompt, response]) FROM generations
)
SELECT DISTINCT t.trace_id, t.span_id, c.canary, c.family, t.channel, c.run_id, s.probe_id, s.arm, c.document_id
FROM texts t JOIN staged_spans s USING (trace_id, span_id)
JOIN canaries c ON (s.run_id IS NULL OR s.run_id = c.run_id) AND contains(t.text, c.canary);

-- Named entities in generated text. `in_query` is an echo of the asker, `in_documents` was read before any defense;
-- both ignore case.
CREATE OR REPLACE VIEW entities AS
WITH words AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, text FROM entity_data
), read AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, w.text
    FROM (SELECT DISTINCT trace_id, content FROM documents WHERE phase = 'retrieved') d JOIN words w USING (trace_id)
    WHERE contains(lower(d.content), lower(w.text))
)
SELECT e.trace_id, e.span_id, e.type, e.text,
    coalesce(contains(lower(coalesce(s.attributes->>'ragtrace.query', s.asked)), lower(e.text)), false) AS in_query,
    r.text IS NOT NULL AS in_documents, s.run_id, s.probe_id, s.arm
FROM entity_data e JOIN staged_spans s USING (trace_id, span_id) LEFT JOIN read r USING (trace_id, text);

CREATE OR REPLACE VIEW scores AS SELECT run_id, probe_id, arm, attack, metric, value FROM score_data;

CREATE OR REPLACE VIEW results AS
SELECT run_id, arm, defense, attack, corpus, metric, channel, value, ci_low, ci_high, n, interpretable, reason, signature,
    path_of_effect, certified, certificate
FROM result_data;
