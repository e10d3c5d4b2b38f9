-- The run-time ledger, parsed: what each run of each defense did.
CREATE OR REPLACE VIEW ledger AS
SELECT *, unnest(try(from_json(effects,
    '[{"defense":"VARCHAR","hook":"VARCHAR","status":"VARCHAR","ids_changed":"BOOLEAN","order_changed":"BOOLEAN","scores_changed":"BOOLEAN","text_changed":"BOOLEAN","metadata_changed":"BOOLEAN","documents_before":"BIGINT","documents_after":"BIGINT","chars_before":"BIGINT","chars_after":"BIGINT","buffered":"BOOLEAN","part":"BOOLEAN","late":"BOOLEAN","kept":"BOOLEAN","error":"VARCHAR","duration_us":"BIGINT","spans":["VARCHAR"]}]'
))) AS e
FROM own_spans;

-- A framework's part that left the documents alone says no hook: it is the one where it changed something elsewhere.
CREATE OR REPLACE VIEW part_hooks AS
SELECT defense, max_by(hook, runs) AS hook FROM (
    SELECT e.defense AS defense, e.hook AS hook, count(*) AS runs FROM ledger
    WHERE contains(effects, '"part":true') AND e.part AND e.hook IN ('retrieval', 'content') GROUP BY ALL ORDER BY ALL
) GROUP BY defense;

CREATE OR REPLACE VIEW effects AS
SELECT s.trace_id, s.span_id, e.defense AS defense, coalesce(e.hook, p.hook, 'content') AS hook, e.status AS status,
    coalesce(e.ids_changed, false) AS ids_changed, coalesce(e.order_changed, false) AS order_changed,
    coalesce(e.scores_changed, false) AS scores_changed, coalesce(e.text_changed, false) AS text_changed,
    coalesce(e.metadata_changed, false) AS metadata_changed,
    e.documents_before AS documents_before, e.documents_after AS documents_after,
    e.chars_before AS chars_before, e.chars_after AS chars_after, s.path, s.arm,
    coalesce(e.buffered, false) AS buffered, coalesce(e.late, false) AS late, coalesce(e.part, false) AS part,
    coalesce(e.kept, false) AS kept,
    e.error AS error, e.duration_us AS duration_us, e.spans AS crossings, s.run_id, s.probe_id, s.framework
FROM ledger s LEFT JOIN part_hooks p ON e.hook IS NULL AND p.defense = e.defense;

-- Parts of frameworks that another instrumentation saw at work, and whose work it did not compare: whether they changed
-- anything is not known. One that we saw as well is in `effects`.
CREATE OR REPLACE VIEW foreign_parts AS
SELECT * FROM (
    SELECT trace_id, span_id, attributes->>'ragtrace.part' AS defense, path, status, dialect FROM staged_spans
    WHERE stage = 'defense' AND dialect <> 'ragtrace' AND (attributes->>'ragtrace.part') IS NOT NULL
) ANTI JOIN (SELECT e.defense AS defense FROM ledger) USING (defense);

-- What each request declared: one row for each defense and hook that it claims.
CREATE OR REPLACE VIEW claims AS
WITH told AS NOT MATERIALIZED (  -- each text is parsed once: most requests declare the same
    SELECT declared, c.key AS defense, unnest(c.value) AS hook
    FROM (SELECT declared, unnest(map_entries(try(declared::JSON::MAP(VARCHAR, VARCHAR[])))) AS c
        FROM (SELECT DISTINCT declared FROM roots))
)
SELECT trace_id, request_id, path, run_id, arm, defense, hook FROM roots JOIN told USING (declared);

-- One row for each declared defense and each crossing of its hook; `ran = false` is a bypass.
-- A stage nested in another is no crossing of its own; one that failed crossed only what lies before the failure.
-- What ran beside the request, in the same trace, on nothing in particular counts for all of it.
CREATE OR REPLACE VIEW coverage AS
WITH passed AS NOT MATERIALIZED (  -- before any join: none has to carry the texts in the attributes
    SELECT trace_id, span_id, request_id,
        CASE WHEN status = 'ERROR' THEN ['query'] ELSE ['query', 'retrieval', 'content'] END AS hooks
    FROM own_spans WHERE NOT nested AND stage = 'retrieval'
    UNION ALL
    -- attributes are long: a look at the text first spares parsing most of them
    SELECT trace_id, span_id, request_id, CASE
        WHEN (status = 'ERROR' OR (contains(attributes::VARCHAR, '"ragtrace.stopped_early"')
            AND attributes->>'ragtrace.stopped_early' IS NOT NULL)) AND coalesce(
            try_cast((attributes->>'gen_ai.output.messages')->>'$[0].parts[0].chars' AS BIGINT), 0) = 0 THEN ['prompt']
        ELSE ['prompt', 'response'] END
    FROM own_spans WHERE NOT nested AND stage = 'generation'
), crossed AS NOT MATERIALIZED (
    SELECT trace_id, span_id, coalesce(nullif(p.request_id, ''), r.request_id) AS request_id, unnest(hooks) AS hook
    FROM passed p LEFT JOIN late_requests r USING (trace_id, span_id)
), met AS NOT MATERIALIZED (
    SELECT trace_id, defense, hook, unnest(CASE WHEN len(crossings) > 0 THEN crossings ELSE [span_id] END) AS span_id
    FROM effects WHERE NOT late
), ran AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, span_id, defense, hook FROM met
), alone AS NOT MATERIALIZED (  -- few
    SELECT trace_id, span_id FROM own_spans WHERE request_id = ''
    UNION ALL
    SELECT trace_id, span_id FROM own_spans ANTI JOIN late_requests USING (trace_id, span_id) WHERE request_id IS NULL
), beside AS NOT MATERIALIZED (
    SELECT DISTINCT trace_id, defense, hook FROM effects SEMI JOIN alone USING (trace_id, span_id)
    WHERE coalesce(len(crossings), 0) = 0
)
SELECT x.trace_id, c.defense, c.hook, c.path, i.defense IS NOT NULL OR b.defense IS NOT NULL AS ran,
    c.run_id, c.arm, c.request_id, x.span_id
FROM crossed x JOIN claims c USING (trace_id, request_id, hook)
LEFT JOIN ran i ON i.trace_id = x.trace_id AND i.span_id = x.span_id AND i.defense = c.defense AND i.hook = c.hook
LEFT JOIN beside b ON b.trace_id = x.trace_id AND b.defense = c.defense AND b.hook = c.hook;
