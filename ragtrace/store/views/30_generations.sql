-- One row for each model call: what the model was given and what the app got.
CREATE OR REPLACE VIEW generations AS
WITH calls AS (
    SELECT *, try(from_json(attributes->>'gen_ai.input.messages', '[{"role":"VARCHAR","parts":[{"content":"VARCHAR","chars":"BIGINT"}]}]')) AS given,
        try(from_json(attributes->>'gen_ai.output.messages',
            '[{"role":"VARCHAR","parts":[{"content":"VARCHAR","chars":"BIGINT"}],"finish_reason":"VARCHAR"}]')) AS answers,
        (attributes->>'ragtrace.mean_logprob')::DOUBLE AS mean_logprob,
        (attributes->>'ragtrace.logprob_tokens')::BIGINT AS logprob_tokens
    FROM own_spans WHERE stage = 'generation'
)
SELECT trace_id, span_id, attributes->>'ragtrace.query' AS query,
    array_to_string(flatten(list_transform(given, lambda m: list_transform(m.parts, lambda p: p.content))), chr(10) || chr(10)) AS prompt,
    array_to_string(flatten(list_transform(answers, lambda m: list_transform(m.parts, lambda p: p.content))), chr(10)) AS response,
    coalesce(attributes->>'gen_ai.response.model', attributes->>'gen_ai.request.model') AS model,
    coalesce((attributes->>'gen_ai.usage.output_tokens')::BIGINT, logprob_tokens) AS completion_tokens,
    mean_logprob, exp(-mean_logprob) AS perplexity, path,
    framework, run_id, probe_id, arm, status, nested,
    attributes->>'ragtrace.response.hash' AS response_hash,
    (attributes->>'gen_ai.usage.input_tokens')::BIGINT AS prompt_tokens,
    answers[1].parts[1].chars AS response_chars,
    answers[1].finish_reason AS finish_reason,
    make_timestamp(start_ns // 1000) AS start_time
FROM calls;
