-- The text of a list of messages (a JSON string); NULL where no text was kept.
CREATE OR REPLACE MACRO message_text(messages, gap) AS array_to_string(flatten(list_transform(
    try(from_json(messages, '[{"parts":[{"content":"VARCHAR"}]}]')),
    lambda m: list_transform(m.parts, lambda p: p.content)
)), gap);

-- What observed defenses left of answers, after the model's stage: told by a later span (ragtrace/store/outgoing.py).
CREATE OR REPLACE VIEW changed_responses AS
SELECT trace_id, span_id, outgoing.content AS content, outgoing.hash AS hash, outgoing.chars AS chars,
    outgoing.statistics::JSON AS computed, outgoing.left_by AS left_by
FROM span_data WHERE outgoing IS NOT NULL;
DROP VIEW IF EXISTS changed_in_audits;
DROP VIEW IF EXISTS told_responses;

-- One row for each model call: what the model was given and what left the app.
CREATE OR REPLACE VIEW generations AS
SELECT trace_id, span_id, coalesce(query, asked) AS query,
    message_text(attributes->>'gen_ai.input.messages', chr(10) || chr(10)) AS prompt,
    CASE WHEN outgoing IS NULL THEN message_text(attributes->>'gen_ai.output.messages', chr(10)) ELSE outgoing.content END
        AS response,
    coalesce(attributes->>'gen_ai.response.model', attributes->>'gen_ai.request.model') AS model,
    coalesce(try_cast(attributes->>'gen_ai.usage.output_tokens' AS BIGINT),
        try_cast(attributes->>'ragtrace.logprob_tokens' AS BIGINT)) AS completion_tokens,
    try_cast(attributes->>'ragtrace.mean_logprob' AS DOUBLE) AS mean_logprob,
    try_cast(attributes->>'ragtrace.logprob_tokens' AS BIGINT) AS logprob_tokens,
    exp(-mean_logprob) AS perplexity, path,
    attributes->>'ragtrace.first_token' AS first_token,
    framework, run_id, probe_id, arm, status, nested,
    CASE WHEN outgoing IS NULL THEN attributes->>'ragtrace.response.hash' ELSE outgoing.hash END AS response_hash,
    try_cast(attributes->>'gen_ai.usage.input_tokens' AS BIGINT) AS prompt_tokens,
    CASE WHEN outgoing IS NULL THEN
        try_cast(try((attributes->>'gen_ai.output.messages')->>'$[0].parts[0].chars') AS BIGINT)
        ELSE outgoing.chars END AS response_chars,
    nullif(try((attributes->>'gen_ai.output.messages')->>'$[0].finish_reason'), 'unknown') AS finish_reason,
    make_timestamp(start_ns // 1000) AS start_time, dialect,
    message_text(attributes->>'gen_ai.output.messages', chr(10)) AS model_output,
    CASE WHEN outgoing IS NULL THEN try_cast(attributes->>'ragtrace.statistics' AS JSON) ELSE outgoing.statistics::JSON END
        AS statistics,
    response IS NOT NULL AND coalesce(attributes->>'ragtrace.capture', 'full') = 'full' AS is_whole,
    -- with texts masked or not kept, only what was looked for in the app can be told
    is_whole OR ((attributes->>'gen_ai.output.messages') IS NOT NULL
        AND coalesce(try_cast(statistics->>'looked_for' AS BIGINT), 0) > 0) AS canaries_readable,
    is_whole OR ((attributes->>'gen_ai.output.messages') IS NOT NULL
        AND (statistics->'found') IS NOT NULL) AS entities_readable
FROM staged_spans
WHERE stage = 'generation';
