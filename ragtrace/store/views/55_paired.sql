-- What left each stage of a probe's request, by hashes, ids and lengths: equal where the request went the same way.
-- One row for each run, probe and arm: of the trace that answered last, as the metrics read it. Stages that run inside
-- another do not count. Without texts (digest) a query is known by its probe alone, a prompt by its length and the
-- documents in it; what a defense changed in them is in the ledger.
CREATE OR REPLACE VIEW outputs AS
WITH calls AS NOT MATERIALIZED (
    SELECT run_id, probe_id, arm, trace_id, stage, start_ns, json_extract_string(attributes, [
        '$."ragtrace.capture"', '$."ragtrace.query.after_defense"', '$."gen_ai.retrieval.query.text"',
        '$."gen_ai.retrieval.documents"', '$."ragtrace.documents.after_defense"', '$."ragtrace.documents.in_prompt"',
        '$."gen_ai.input.messages"', '$."ragtrace.response.hash"']) AS a, outgoing
    FROM own_spans
    WHERE run_id IS NOT NULL AND probe_id IS NOT NULL AND NOT nested
        AND (stage IS NULL OR stage IN ('retrieval', 'context', 'generation', 'defense'))
), lists AS NOT MATERIALIZED (
    SELECT run_id, probe_id, arm, trace_id, stage, start_ns, a[1] AS capture, a[7] AS messages, if(outgoing IS NULL, a[8], outgoing.hash) AS response,
        CASE WHEN stage = 'retrieval' THEN coalesce(a[2], a[3], '') END AS query,
        try(from_json(a[4], '[{"id":"VARCHAR","hash":"VARCHAR"}]')) AS found,
        try(from_json(a[5], '[{"id":"VARCHAR","hash":"VARCHAR","of":"BIGINT"}]')) AS kept,
        try(from_json(a[6], '[{"hash":"VARCHAR"}]')) AS pieces
    FROM calls
), traced AS (
    SELECT run_id, probe_id, arm, trace_id, coalesce(any_value(capture), 'full') AS capture,
        max(start_ns) FILTER (stage = 'generation') AS answered,
        list_sort(list(md5(query)) FILTER (query IS NOT NULL))::VARCHAR AS query,
        list_sort(list_distinct(list(coalesce(
            list_transform(kept, lambda d: d.id), list_transform(found, lambda d: d.id))::VARCHAR
        ) FILTER (kept IS NOT NULL OR found IS NOT NULL)))::VARCHAR AS retrieval,
        list_sort(list_distinct(list(list_sort(coalesce(
            list_transform(kept, lambda d: coalesce(d.hash, found[d.of + 1].hash)),
            list_transform(found, lambda d: d.hash)))::VARCHAR
        ) FILTER (kept IS NOT NULL OR found IS NOT NULL)))::VARCHAR AS content,
        list(coalesce(md5(messages), pieces::VARCHAR) ORDER BY start_ns)
            FILTER (messages IS NOT NULL OR (stage = 'context' AND pieces IS NOT NULL))::VARCHAR AS prompt,
        (list(response ORDER BY start_ns DESC) FILTER (stage = 'generation'))[1] AS response
    FROM lists GROUP BY ALL
)
SELECT run_id, probe_id, arm, trace_id, capture,
    CASE WHEN capture <> 'none' THEN query END AS query, retrieval,
    CASE WHEN capture <> 'none' THEN content END AS content,
    CASE WHEN capture <> 'none' AND answered IS NOT NULL THEN prompt END AS prompt, response
FROM traced
QUALIFY row_number() OVER (
    PARTITION BY run_id, probe_id, arm ORDER BY answered DESC NULLS LAST, trace_id DESC) = 1;

-- The defenses that an arm switched on: as the audit says, else what ran in it and not in the undefended arm.
-- A part that the app always brings is no work of an arm.
CREATE OR REPLACE VIEW switched_on AS
WITH said AS (
    SELECT run_id, unnest(map_entries(try(
        json_extract(attributes->>'ragtrace.run', '$.arms')::MAP(VARCHAR, VARCHAR[])))) AS m
    FROM own_spans WHERE stage IS NULL AND run_id IS NOT NULL AND (attributes->>'ragtrace.run') IS NOT NULL
), seen AS (
    SELECT DISTINCT run_id, arm, defense FROM effects WHERE run_id IS NOT NULL AND arm IS NOT NULL
)
SELECT DISTINCT run_id, m.key AS arm, unnest(m.value) AS defense FROM said
UNION ALL
SELECT run_id, arm, defense FROM seen
WHERE arm <> 'none' AND (run_id, arm) NOT IN (SELECT (run_id, m.key) FROM said)
    AND (run_id, defense) NOT IN (SELECT (run_id, defense) FROM seen WHERE arm = 'none');

-- The same probe with and without the defenses: which channel came out otherwise, and was it at that very hook?
CREATE OR REPLACE VIEW paired AS
WITH acts AS (
    SELECT e.trace_id, list(DISTINCT e.hook) AS hooks,
        -- what a content hook drops or moves is missing from the list of documents too
        bool_or(e.hook = 'content' AND (e.ids_changed OR e.order_changed)) AS moves
    FROM effects e JOIN switched_on USING (run_id, arm, defense)
    WHERE e.status = 'changed' AND e.probe_id IS NOT NULL GROUP BY e.trace_id
), twins AS (
    SELECT d.run_id, d.probe_id, d.arm, d.trace_id, b.trace_id AS baseline_trace_id, d.capture,
        coalesce(a.hooks, []) AS hooks, coalesce(a.moves, false) AS moves,
        unnest(['query', 'retrieval', 'content', 'prompt', 'response']) AS channel,
        unnest([d.query, d.retrieval, d.content, d.prompt, d.response]) AS here,
        unnest([b.query, b.retrieval, b.content, b.prompt, b.response]) AS there
    FROM outputs d LEFT JOIN outputs b ON b.run_id = d.run_id AND b.probe_id = d.probe_id AND b.arm = 'none'
    LEFT JOIN acts a ON a.trace_id = d.trace_id
    WHERE d.arm <> 'none'
), judged AS (
    SELECT *, list_contains(hooks, channel) OR (channel = 'retrieval' AND moves) AS here_acted,
        CASE WHEN here IS NOT NULL AND there IS NOT NULL
            -- where texts are masked or not kept, what a defense did to a query or prompt shows in the ledger alone
            THEN here <> there OR (capture <> 'full' AND channel IN ('query', 'prompt') AND list_contains(hooks, channel))
        END AS changed
    FROM twins
)
SELECT run_id, probe_id, arm, channel, changed,
    CASE WHEN changed IS NULL THEN 'no data' WHEN NOT changed THEN 'same' WHEN here_acted THEN 'direct' ELSE 'through'
        END AS how,
    CASE WHEN changed THEN list_filter(['query', 'retrieval', 'content', 'prompt', 'response'], lambda h, i:
        list_contains(hooks, h) AND (i <= list_position(['query', 'retrieval', 'content', 'prompt', 'response'], channel)
            OR (channel = 'retrieval' AND h = 'content' AND moves)))[1] END AS origin,
    trace_id, baseline_trace_id
FROM judged;
