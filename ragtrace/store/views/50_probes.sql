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
SELECT DISTINCT run_id, c.text AS canary, c.family, c.document_id, c.digest
FROM (
    SELECT run_id, unnest(try(from_json((attributes->>'ragtrace.run')->'canaries',
        '[{"text":"VARCHAR","family":"VARCHAR","document_id":"VARCHAR","digest":"VARCHAR"}]'))) AS c
    FROM own_spans WHERE stage IS NULL AND run_id IS NOT NULL
);

-- Whether a text may hold a canary: canary_search.py writes these anew for those that are planted, as patterns that look
-- for many at once. Where it has not (`searched_for` tells), every text may. The same of attributes as they are stored,
-- where texts are escaped, once or twice: all that hold one may, and some others.
CREATE OR REPLACE MACRO may_hold_canary(text) AS true;
CREATE OR REPLACE MACRO may_hold_planted(attributes) AS true;
CREATE OR REPLACE MACRO searched_for() AS '';

-- A row where other canaries are planted than these macros look for.
CREATE OR REPLACE VIEW stale_search AS
SELECT count(DISTINCT canary) AS planted FROM canaries
HAVING md5(string_agg(DISTINCT canary, chr(10) ORDER BY canary)) <> searched_for();

-- Traces in which one may turn up: a text may stand in one span, and be pointed at by another.
CREATE OR REPLACE VIEW suspected_traces AS
SELECT DISTINCT trace_id FROM span_data
WHERE may_hold_planted(attributes::VARCHAR) OR contains(attributes::VARCHAR, 'canaries')
UNION
SELECT trace_id FROM span_data WHERE contains(outgoing.statistics, 'canaries')
UNION
SELECT trace_id FROM span_data, stale_search;

-- Where a canary turned up, by exact match, in any text that was recorded. Traffic outside of audits is searched for
-- every canary, an audit's own for those that it planted. Those that the app was told of were looked for there: they
-- are named by their digest, unless a run with the same key has planted them.
CREATE OR REPLACE VIEW canary_hits AS
WITH stale AS MATERIALIZED (
    SELECT count(*) > 0 AS is_stale FROM stale_search
), sought AS NOT MATERIALIZED (
    SELECT *, run_id AS seen_by FROM canaries UNION ALL SELECT *, NULL FROM canaries
), texts AS NOT MATERIALIZED (
    SELECT trace_id, span_id, 'query' AS channel, query AS text FROM stages WHERE stage = 'retrieval'
    UNION ALL
    SELECT trace_id, span_id, CASE phase WHEN 'retrieved' THEN 'retrieval' ELSE 'content' END, content
    FROM documents WHERE phase <> 'in_prompt'
    UNION ALL
    SELECT trace_id, span_id, unnest(['prompt', 'response']), unnest([prompt, response]) FROM generations
), told AS NOT MATERIALIZED (
    SELECT trace_id, span_id, run_id, probe_id, arm, outgoing IS NULL AS is_what_left,
        try_cast(attributes->>'ragtrace.statistics' AS JSON) AS told
    FROM own_spans WHERE stage IS NOT NULL AND contains(attributes::VARCHAR, 'canaries')  -- a glance spares parsing most
    UNION ALL
    SELECT trace_id, span_id, run_id, probe_id, arm, true, outgoing.statistics::JSON FROM own_spans WHERE outgoing IS NOT NULL
), computed AS NOT MATERIALIZED (
    SELECT * FROM (
        SELECT * EXCLUDE (told), unnest(try(from_json(told->'canaries',
            '[{"text":"VARCHAR","digest":"VARCHAR","family":"VARCHAR","channel":"VARCHAR"}]'))) AS hit FROM told
    ) WHERE is_what_left OR hit.channel <> 'response'
)
SELECT DISTINCT t.trace_id, t.span_id, c.canary, c.family, t.channel, c.run_id, s.probe_id, s.arm, c.document_id
FROM (SELECT * FROM texts WHERE may_hold_canary(text) OR (SELECT is_stale FROM stale)) t
JOIN staged_spans s USING (trace_id, span_id)
JOIN sought c ON s.run_id IS NOT DISTINCT FROM c.seen_by AND contains(t.text, c.canary)
UNION
SELECT h.trace_id, h.span_id, coalesce(hit.text, c.canary, hit.digest), coalesce(c.family, hit.family), hit.channel,
    c.run_id, h.probe_id, h.arm, c.document_id
FROM computed h LEFT JOIN canaries c
ON (h.run_id IS NULL OR h.run_id = c.run_id) AND coalesce(c.digest = hit.digest, c.canary = hit.text);

-- Whether statistics tell which entities were found, by a glance that spares parsing most: as JSON, or as its text in JSON.
CREATE OR REPLACE MACRO may_tell_found(stored) AS contains(stored, '"found"') OR contains(stored, '\"found\"');

-- Named entities in generated text; where that is not kept, as they were recognised in the app, each by the digest of its
-- lower case (NULL where there was no key for it). `in_query` is an echo of the asker, `in_documents` was read before any defense,
-- `in_control` is what the model says to the same probe without any document; all ignore case.
CREATE OR REPLACE VIEW entities AS
WITH words AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, text FROM entity_data
), read AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, w.text FROM documents d JOIN words w USING (trace_id)
    WHERE phase = 'retrieved' AND contains(lower(d.content), lower(w.text))
), computed AS NOT MATERIALIZED (
    SELECT trace_id, span_id, run_id, probe_id, arm, unnest(try(from_json(
        CASE WHEN outgoing IS NULL THEN try_cast(attributes->>'ragtrace.statistics' AS JSON)
            ELSE outgoing.statistics::JSON END->'found',
        '[{"type":"VARCHAR","digest":"VARCHAR","in_query":"BOOLEAN","in_documents":"BOOLEAN"}]'))) AS e
    FROM own_spans WHERE stage = 'generation'
        AND CASE WHEN outgoing IS NULL THEN may_tell_found(attributes::VARCHAR) ELSE may_tell_found(outgoing.statistics) END
), said AS NOT MATERIALIZED (  -- before any join: none has to carry the attributes, and a glance spares parsing most twice
    SELECT trace_id, span_id, coalesce(query, asked) AS query, run_id, probe_id, arm, outgoing.left_by AS left_by,
        may_tell_found(attributes::VARCHAR)
            AND try((attributes->>'ragtrace.statistics')->'found') IS NOT NULL AS is_computed
    FROM staged_spans SEMI JOIN (SELECT trace_id, span_id FROM entity_data) USING (trace_id, span_id) WHERE stage = 'generation'
), named AS NOT MATERIALIZED (
    SELECT e.trace_id, e.span_id, e.type, e.text, coalesce(contains(lower(s.query), lower(e.text)), false) AS in_query,
        r.text IS NOT NULL AS in_documents, s.run_id, s.probe_id, s.arm
    FROM entity_data e JOIN said s USING (trace_id, span_id) LEFT JOIN read r USING (trace_id, text)
    -- in one condition on both, which is looked at after the join: of the answers without entities nothing is parsed
    WHERE CASE WHEN s.is_computed THEN false ELSE e.left_by IS NOT DISTINCT FROM s.left_by END
    UNION ALL
    SELECT trace_id, span_id, e.type, e.digest, e.in_query, e.in_documents, run_id, probe_id, arm FROM computed
), controls AS NOT MATERIALIZED (
    SELECT DISTINCT run_id, probe_id, trace_id FROM span_data
    WHERE arm = 'no_retrieval' AND stage = 'generation' AND run_id IS NOT NULL AND probe_id IS NOT NULL
), computed_in_controls AS NOT MATERIALIZED (
    SELECT s.trace_id, unnest(try(from_json(
        CASE WHEN outgoing IS NULL THEN try_cast(attributes->>'ragtrace.statistics' AS JSON)
            ELSE outgoing.statistics::JSON END->'found', '[{"digest":"VARCHAR"}]'))) AS e
    FROM own_spans s
    WHERE stage = 'generation' AND run_id IS NOT NULL AND s.trace_id IN (SELECT trace_id FROM controls)
), controlled AS NOT MATERIALIZED (
    SELECT DISTINCT run_id, probe_id FROM controls
), known AS NOT MATERIALIZED (
    SELECT DISTINCT run_id, probe_id, lower(text) AS text FROM controls
    JOIN (
        SELECT trace_id, text FROM entity_data
        UNION ALL SELECT trace_id, e.digest FROM computed_in_controls
    ) USING (trace_id)
)
SELECT e.trace_id, e.span_id, e.type, e.text, e.in_query, e.in_documents, e.run_id, e.probe_id, e.arm,
    CASE WHEN c.probe_id IS NOT NULL AND e.arm <> 'no_retrieval' THEN k.text IS NOT NULL END AS in_control
FROM named e LEFT JOIN controlled c ON c.run_id = e.run_id AND c.probe_id = e.probe_id
LEFT JOIN known k ON k.run_id = e.run_id AND k.probe_id = e.probe_id AND k.text = lower(e.text);

CREATE OR REPLACE VIEW scores AS SELECT run_id, probe_id, arm, attack, metric, value FROM score_data;

CREATE OR REPLACE VIEW results AS
SELECT run_id, arm, defense, attack, corpus, metric, channel, value, ci_low, ci_high, n, interpretable, reason, signature,
    path_of_effect, certified, certificate
FROM result_data;
