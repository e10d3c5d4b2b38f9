"""Every span and attribute name, one line each.

GenAI semantic-convention names where they exist; ours under ``ragtrace.``. Lists are one JSON
attribute each: the SDK keeps 128 attributes a span and drops the oldest first.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "ragtrace"  # instrumentation scope (tracer name) of every span of ours

# OpenTelemetry GenAI semantic conventions
OPERATION: Final = "gen_ai.operation.name"  # `retrieval` or `chat` or `text_completion`
RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"  # the query the app asked with, before any defense
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"  # JSON list: id, score, hash, chars, content, metadata
PROVIDER: Final = "gen_ai.provider.name"  # whose client the model is; `_OTHER` where that is not known
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"  # true: the model was asked to stream
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"  # list of texts, where the model told one
INPUT_MESSAGES: Final = "gen_ai.input.messages"  # JSON list of {role, parts}: what the model really got
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"  # JSON list of {role, parts, finish_reason}: what the app really got
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR_TYPE: Final = "error.type"  # class name of the exception

# ours, on every span
FRAMEWORK: Final = "ragtrace.framework"  # `langchain`, `llama_index`, `none`
PATH: Final = "ragtrace.path"  # the caller's outermost call: invoke, ainvoke, stream, astream, batch, abatch
CAPTURE: Final = "ragtrace.capture"  # full, masked, digest, none
RUN_ID: Final = "ragtrace.run_id"  # of the audit run, where there is one
PROBE_ID: Final = "ragtrace.probe_id"  # the same in every arm
ARM: Final = "ragtrace.arm"  # which defenses were on, as the audit calls it
EFFECTS: Final = "ragtrace.effects"  # JSON list: what each defense's run did here
SESSION: Final = "session.id"  # of the app's, by baggage or the framework's config; an id, so kept in every mode
USER: Final = "user.id"  # the same
LOSSES: Final = "ragtrace.losses"  # JSON list of sentences: what could not be recorded, and why

# ours, on the root span of a request
DECLARED: Final = "ragtrace.declared"  # JSON object: defense → hooks it claims
PROBE: Final = "ragtrace.probe"  # JSON object: the probe's ground truth
CANCELLED: Final = "ragtrace.stopped_early"  # the consumer left the stream, or the task was cancelled

# ours, on stage spans
STAGE: Final = "ragtrace.stage"  # retrieval, context, generation
NESTED: Final = "ragtrace.nested"  # true where this stage runs inside another: no defense acts, no hook is crossed
QUERY: Final = "ragtrace.query"  # generation: the request's query
QUERY_SENT: Final = "ragtrace.query.after_defense"  # retrieval: the query really sent, where a defense changed it
POOL: Final = "ragtrace.retrieval.pool"  # how many candidates were fetched for retrieval defenses
AFTER_DEFENSE: Final = "ragtrace.documents.after_defense"  # JSON list; `of`: rank among the retrieved, if of that text
IN_PROMPT: Final = "ragtrace.documents.in_prompt"  # JSON list: of, id, start, run, chars, whole
BUFFERED: Final = "ragtrace.buffered"  # a response defense read the whole stream before its first token left
MEAN_LOGPROB: Final = "ragtrace.mean_logprob"  # mean log-probability (natural log) of the response's tokens
LOGPROB_TOKENS: Final = "ragtrace.logprob_tokens"  # how many tokens it is the mean of
# in audits that keep text: JSON list of the first token's candidates, [text, logprob], most likely first, at most 20;
# the model's own, before any response defense: one that changes the answer does not change them
FIRST_TOKEN: Final = "ragtrace.first_token"  # noqa: S105
RESPONSE_HASH: Final = "ragtrace.response.hash"  # keyed digest of the answer that the model's stage gave
# JSON object: what was computed of texts that are not kept. Where a model answered: `entities` and `in_documents` (of
# the answer, and of the documents retrieved for it, before any defense: how many by type), `found` (the answer's,
# each: type, in_query, in_documents, keyed digest of it in lower case), `leaked` (how many different ones are in
# documents and not in the query), `overlap` (by document: id, entities leaked, longest_run and containment as in
# ragtrace.overlap).
# Wherever texts cross: `canaries` (keyed digest, or in capture `full` the text; family, channel), and `looked_for`, how
# many were looked for: without it nobody looked; with it and no `canaries` none was found
STATISTICS: Final = "ragtrace.statistics"

# JSON list, on the span with the effects of observed response defenses: what they left of answers, each by the `span`
# of its model's stage: chars, hash, content, statistics (as above, of this text)
RESPONSES_LEFT: Final = "ragtrace.responses.left"

# ours, on the span that an audit emits once a run
ARM_DONE: Final = "ragtrace.arm.done"  # true: every probe and session of this arm came to its end
RUN: Final = "ragtrace.run"  # JSON object: canaries, corpus, model, arms
