-- What each model call could have read, text beside text: the documents that stood in the prompt of its request, where
-- that was seen; else what the defenses left of those retrieved, and those that no defense got; else all retrieved. In
-- a trace that does not tell its requests apart: of the trace. Every document once, by its id and text.
-- Where texts were not kept, the numbers are those that were computed in the app, of the documents as retrieved.
-- For single traces: over all of a store it reads every span. `exposure` has what was measured. Windows, not joins of the
-- documents with themselves: they are read once, and of one trace where one is asked for.
CREATE OR REPLACE VIEW exposure_pairs AS
WITH spoken AS NOT MATERIALIZED (
    SELECT g.trace_id, g.span_id, r.request_id, g.query, g.response, g.path, s.service, g.run_id, g.arm, g.nested,
        s.start_ns, try(from_json(g.statistics->'overlap',
            '[{"id":"VARCHAR","longest_run":"BIGINT","containment":"DOUBLE","entities":"BIGINT"}]')) AS told
    FROM generations g JOIN span_data s USING (trace_id, span_id) LEFT JOIN requests r USING (trace_id, span_id)
), seen AS NOT MATERIALIZED (
    SELECT d.trace_id, d.span_id, r.request_id, d.phase, d.rank, d.document_id, d.content, d.content_hash,
        k.span_id IS NOT NULL AS is_met  -- by a defense, also where nothing was left
    FROM documents d LEFT JOIN requests r USING (trace_id, span_id) LEFT JOIN (
        SELECT trace_id, span_id FROM staged_spans
        WHERE stage IN ('retrieval', 'defense') AND (attributes->>'ragtrace.documents.after_defense') IS NOT NULL
    ) k ON k.trace_id = d.trace_id AND k.span_id = d.span_id AND d.phase = 'retrieved'
), placed AS NOT MATERIALIZED (
    SELECT *, bool_or(is_met) OVER (PARTITION BY trace_id, document_id) AS is_defended,
        bool_or(phase = 'in_prompt') OVER (PARTITION BY trace_id, request_id)
            OR bool_or(phase = 'in_prompt' AND request_id IS NULL) OVER (PARTITION BY trace_id)
            OR (request_id IS NULL AND bool_or(phase = 'in_prompt') OVER (PARTITION BY trace_id)) AS is_prompted
    FROM seen
), readable AS NOT MATERIALIZED (
    SELECT trace_id, request_id, phase, min(rank) AS rank, document_id, min(content) AS content FROM placed
    WHERE phase = 'in_prompt'
        OR (NOT is_prompted AND (phase = 'after_defense' OR (phase = 'retrieved' AND NOT is_defended)))
    GROUP BY trace_id, request_id, phase, document_id, coalesce(content_hash, md5(content))
), routes AS NOT MATERIALIZED (
    SELECT trace_id, min(attributes->>'http.route') AS route FROM span_data GROUP BY trace_id
)
SELECT g.trace_id, g.span_id,
    coalesce(d.document_id, 'text ' || substr(md5(d.content), 1, 16)) AS document_id,  -- without an id: by its text
    d.phase, d.rank, g.query, g.response, d.content,
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
