-- What each model call could have read, text beside text: the documents that stood in the prompt of its request, where
-- that was seen; else what the defenses left of those retrieved, and those that no defense got; else all retrieved. In
-- a trace that does not tell its requests apart: of the trace. Every document once, by its id and text.
-- Where texts were not kept, the numbers are those that were computed in the app, of the documents as retrieved.
-- For single traces: over all of a store it reads every span. `exposure` has what was measured.
CREATE OR REPLACE VIEW exposure_pairs AS
WITH spoken AS (
    SELECT g.trace_id, g.span_id, r.request_id, g.query, g.response, g.path, s.service, g.run_id, g.arm, g.nested,
        s.start_ns, try(from_json(g.statistics->'overlap',
            '[{"id":"VARCHAR","longest_run":"BIGINT","containment":"DOUBLE","entities":"BIGINT"}]')) AS told
    FROM generations g JOIN span_data s USING (trace_id, span_id) LEFT JOIN requests r USING (trace_id, span_id)
), seen AS (
    SELECT d.trace_id, d.span_id, r.request_id, d.phase, d.rank, d.document_id, d.content, d.content_hash
    FROM documents d LEFT JOIN requests r USING (trace_id, span_id)
), prompted AS (
    SELECT DISTINCT trace_id, request_id FROM seen WHERE phase = 'in_prompt'
), defended AS (  -- also where nothing was left
    SELECT DISTINCT trace_id, document_id FROM seen JOIN (
        SELECT trace_id, span_id FROM staged_spans
        WHERE stage IN ('retrieval', 'defense') AND (attributes->>'ragtrace.documents.after_defense') IS NOT NULL
    ) USING (trace_id, span_id) WHERE phase = 'retrieved'
), readable AS (
    SELECT trace_id, request_id, phase, min(rank) AS rank, document_id, any_value(content) AS content
    FROM (
        SELECT * FROM seen WHERE phase = 'in_prompt'
        UNION ALL
        SELECT s.* FROM (
            SELECT * FROM seen WHERE phase = 'after_defense'
            UNION ALL
            SELECT s.* FROM seen s WHERE phase = 'retrieved' AND NOT EXISTS (
                FROM defended d WHERE d.trace_id = s.trace_id AND d.document_id IS NOT DISTINCT FROM s.document_id
            )
        ) s WHERE NOT EXISTS (
            FROM prompted p WHERE p.trace_id = s.trace_id
                AND coalesce(p.request_id = s.request_id, true)
        )
    ) GROUP BY trace_id, request_id, phase, document_id, coalesce(content_hash, md5(content))
), routes AS (
    SELECT trace_id, min(attributes->>'http.route') AS route FROM span_data GROUP BY trace_id
)
SELECT g.trace_id, g.span_id, d.document_id, d.phase, d.rank, g.query, g.response, d.content,
    list_filter(g.told, lambda t: t.id = d.document_id)[1] AS told,
    g.path, g.service, r.route, t.session, t.user_id, g.run_id, g.arm, g.nested, g.start_ns
FROM spoken g
JOIN readable d ON d.trace_id = g.trace_id AND coalesce(d.request_id = g.request_id, true)
LEFT JOIN routes r ON r.trace_id = g.trace_id LEFT JOIN session_traces t ON t.trace_id = g.trace_id;

-- What of each document reached each answer. Generations of which nothing was measured yet are here too, one row each,
-- without a document and without numbers: `ragtrace exposure` measures them.
CREATE OR REPLACE VIEW exposure AS
SELECT trace_id, document_id, longest_run, containment, entities_leaked, span_id, rank, phase, answer_words, path, service,
    route, session, user_id, run_id, arm, nested, make_timestamp(start_ns // 1000) AS start_time,
    make_timestamp(start_ns // 1000)::DATE AS day, true AS measured
FROM exposure_data
UNION ALL
SELECT trace_id, NULL, NULL, NULL, NULL, span_id, NULL, NULL, NULL, path, service, NULL, NULL, NULL, run_id, arm, nested,
    make_timestamp(start_ns // 1000), make_timestamp(start_ns // 1000)::DATE, false
FROM span_data s
WHERE stage = 'generation' AND (dialect = 'ragtrace' OR duplicate_of IS NULL)
    AND rowid > (SELECT coalesce(max(row_id), -1) FROM exposure_mark_data)
    AND NOT EXISTS (FROM exposure_data e WHERE e.trace_id = s.trace_id AND e.span_id = s.span_id);
