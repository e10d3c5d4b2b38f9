-- What the retriever returned, what the defenses left of it, and what of that really stood in the prompt.
-- A text is stored once: the later phases point at an earlier one (`of` is its 0-based place, or the digest).
CREATE OR REPLACE VIEW documents AS
WITH retrieved AS (
    SELECT s.trace_id, s.span_id, s.run_id, s.arm, s.start_ns, u.place, u.doc
    FROM own_spans s, unnest(try(from_json(s.attributes->>'gen_ai.retrieval.documents',
        '[{"id":"VARCHAR","score":"DOUBLE","hash":"VARCHAR","chars":"BIGINT","content":"VARCHAR","metadata":"JSON"}]')))
        WITH ORDINALITY AS u(doc, place)
    WHERE s.stage = 'retrieval'
), defended AS (
    SELECT s.trace_id, s.span_id, s.run_id, s.arm, s.start_ns, u.place, u.doc,
        coalesce(u.doc.content, r.doc.content) AS content, coalesce(u.doc.hash, r.doc.hash) AS hash,
        coalesce(u.doc.chars, r.doc.chars) AS chars
    FROM own_spans s, unnest(try(from_json(s.attributes->>'ragtrace.documents.after_defense',
        '[{"id":"VARCHAR","score":"DOUBLE","hash":"VARCHAR","chars":"BIGINT","content":"VARCHAR","of":"BIGINT"}]')))
        WITH ORDINALITY AS u(doc, place)
    LEFT JOIN retrieved r ON r.trace_id = s.trace_id AND r.span_id = s.span_id AND r.place = u.doc.of + 1
    WHERE s.stage = 'retrieval'
), texts AS (
    SELECT trace_id, hash, any_value(content) AS content, any_value(score) AS score FROM (
        SELECT trace_id, doc.hash AS hash, doc.content AS content, doc.score AS score FROM retrieved
        UNION ALL SELECT trace_id, hash, content, doc.score FROM defended
    ) WHERE hash IS NOT NULL GROUP BY trace_id, hash
), prompted AS (
    SELECT s.trace_id, s.span_id, s.run_id, s.arm, s.start_ns, u.place, u.doc,
        coalesce(u.doc.content, t.content) AS content, t.score
    FROM own_spans s, unnest(try(from_json(s.attributes->>'ragtrace.documents.in_prompt',
        '[{"id":"VARCHAR","of":"BIGINT","start":"BIGINT","run":"BIGINT","at":"BIGINT","whole":"BOOLEAN","hash":"VARCHAR","content":"VARCHAR"}]')))
        WITH ORDINALITY AS u(doc, place)
    LEFT JOIN texts t ON t.trace_id = s.trace_id AND t.hash = u.doc.hash
    WHERE s.stage = 'context'
)
SELECT trace_id, span_id, 'retrieval' AS stage, 'retrieved' AS phase, place AS rank, doc.id AS document_id,
    doc.score AS score, doc.content AS content, doc.hash AS content_hash, doc.chars AS chars,
    NULL::BOOLEAN AS whole, doc.metadata AS metadata, run_id, arm
FROM retrieved
UNION ALL
SELECT trace_id, span_id, 'retrieval', 'after_defense', place, doc.id, doc.score, content, hash, chars,
    NULL, NULL, run_id, arm
FROM defended
UNION ALL
SELECT trace_id, span_id, 'context', 'in_prompt', place, doc.id, score, content, doc.hash, doc.run,
    doc.whole, NULL, run_id, arm
FROM prompted;
