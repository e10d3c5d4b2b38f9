-- The documents that were retrieved, as `documents` reads them, without their texts: in half of the time.
CREATE OR REPLACE VIEW retrieved_ids AS
SELECT trace_id, span_id, try(from_json(attributes->>'gen_ai.retrieval.documents',
    '[{"id":"VARCHAR","score":"DOUBLE","chars":"BIGINT"}]')) AS found
FROM staged_spans WHERE stage IN ('retrieval', 'defense');

-- What the retriever returned, what the defenses left of it, and what of that really stood in the prompt.
-- A text is stored once: the later phases point at an earlier one (`of` is its 0-based place, or the digest).
-- The lists are unnested in SELECT: beside FROM it would be a join of every list with itself.
CREATE OR REPLACE VIEW documents AS
WITH lists AS NOT MATERIALIZED (
    SELECT trace_id, span_id, run_id, arm,
        try(from_json(attributes->>'gen_ai.retrieval.documents',
            '[{"id":"VARCHAR","score":"DOUBLE","hash":"VARCHAR","chars":"BIGINT","content":"VARCHAR","metadata":"JSON"}]')) AS found,
        try(from_json(attributes->>'ragtrace.documents.after_defense',
            '[{"id":"VARCHAR","score":"DOUBLE","hash":"VARCHAR","chars":"BIGINT","content":"VARCHAR","of":"BIGINT"}]')) AS kept
    FROM staged_spans WHERE stage IN ('retrieval', 'defense')
), retrieved AS NOT MATERIALIZED (
    SELECT trace_id, span_id, run_id, arm, unnest(found) AS doc, generate_subscripts(found, 1) AS rank FROM lists
), defended AS NOT MATERIALIZED (
    SELECT trace_id, span_id, run_id, arm, rank, doc.id AS id, doc.score AS score,
        coalesce(doc.content, found[doc.of + 1].content) AS content,
        coalesce(doc.hash, found[doc.of + 1].hash) AS hash,
        coalesce(doc.chars, found[doc.of + 1].chars) AS chars
    FROM (SELECT *, unnest(kept) AS doc, generate_subscripts(kept, 1) AS rank FROM lists)
), texts AS NOT MATERIALIZED (
    SELECT trace_id, hash, min(content) AS content, max(score) AS score FROM (
        SELECT trace_id, doc.hash AS hash, doc.content AS content, doc.score AS score FROM retrieved
        UNION ALL SELECT trace_id, hash, content, score FROM defended
    ) WHERE hash IS NOT NULL GROUP BY trace_id, hash
), prompted AS NOT MATERIALIZED (
    SELECT trace_id, span_id, run_id, arm, unnest(pieces) AS doc, generate_subscripts(pieces, 1) AS rank
    FROM (
        SELECT *, try(from_json(attributes->>'ragtrace.documents.in_prompt',
            '[{"id":"VARCHAR","run":"BIGINT","whole":"BOOLEAN","hash":"VARCHAR","content":"VARCHAR"}]')) AS pieces
        FROM own_spans WHERE stage = 'context'
    )
)
SELECT trace_id, span_id, 'retrieval' AS stage, 'retrieved' AS phase, rank, doc.id AS document_id, doc.score AS score,
    doc.content AS content, doc.hash AS content_hash, doc.chars AS chars, NULL::BOOLEAN AS whole,
    doc.metadata AS metadata, run_id, arm
FROM retrieved
UNION ALL
SELECT d.trace_id, d.span_id, 'retrieval', 'after_defense', d.rank, d.id, d.score, coalesce(d.content, t.content),
    d.hash, d.chars, NULL, NULL, d.run_id, d.arm
FROM defended d LEFT JOIN texts t ON d.content IS NULL AND t.trace_id = d.trace_id AND t.hash = d.hash
UNION ALL
SELECT p.trace_id, p.span_id, 'context', 'in_prompt', p.rank, p.doc.id, t.score, coalesce(p.doc.content, t.content),
    p.doc.hash, p.doc.run, p.doc.whole, NULL, p.run_id, p.arm
FROM prompted p LEFT JOIN texts t ON t.trace_id = p.trace_id AND t.hash = p.doc.hash;
