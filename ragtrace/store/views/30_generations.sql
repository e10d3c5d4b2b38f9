-- The text of a list of messages (a JSON string); NULL where no text was kept.
CREATE OR REPLACE MACRO message_text(messages, gap) AS array_to_string(flatten(list_transform(
    try(from_json(messages, '[{"parts":[{"content":"VARCHAR"}]}]')),
    lambda m: list_transform(m.parts, lambda p: p.content)
)), gap);

-- One row for each model call: what the model was given and what the app got.
CREATE OR REPLACE VIEW generations AS
SELECT trace_id, span_id, coalesce(attributes->>'ragtrace.query', asked) AS query,
    message_text(attributes->>'gen_ai.input.messages', chr(10) || chr(10)) AS prompt,
    message_text(attributes->>'gen_ai.output.messages', chr(10)) AS response,
    coalesce(attributes->>'gen_ai.response.model', attributes->>'gen_ai.request.model') AS model,
    coalesce(try_cast(attributes->>'gen_ai.usage.output_tokens' AS BIGINT),
        try_cast(attributes->>'ragtrace.logprob_tokens' AS BIGINT)) AS completion_tokens,
    try_cast(attributes->>'ragtrace.mean_logprob' AS DOUBLE) AS mean_logprob,
    try_cast(attributes->>'ragtrace.logprob_tokens' AS BIGINT) AS logprob_tokens,
    exp(-mean_logprob) AS perplexity, path,
    attributes->>'ragtrace.first_token' AS first_token,
    framework, run_id, probe_id, arm, status, nested,
    attributes->>'ragtrace.response.hash' AS response_hash,
    try_cast(attributes->>'gen_ai.usage.input_tokens' AS BIGINT) AS prompt_tokens,
    try_cast(try((attributes->>'gen_ai.output.messages')->>'$[0].parts[0].chars') AS BIGINT) AS response_chars,
    nullif(try((attributes->>'gen_ai.output.messages')->>'$[0].finish_reason'), 'unknown') AS finish_reason,
    make_timestamp(start_ns // 1000) AS start_time, dialect
FROM staged_spans WHERE stage = 'generation';
