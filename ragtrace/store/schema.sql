-- The tables that hold what was recorded. Everything shown is a view over them (views/*.sql).
-- Version 1.

CREATE TABLE IF NOT EXISTS ragtrace_meta (key VARCHAR, value VARCHAR);
COMMENT ON TABLE ragtrace_meta IS 'Facts about this database: schema_version, definitions (digest of these files).';
COMMENT ON COLUMN ragtrace_meta.key IS 'Name of the fact.';
COMMENT ON COLUMN ragtrace_meta.value IS 'Its value, as text.';

CREATE TABLE IF NOT EXISTS segment_data (name VARCHAR, bytes BIGINT, spans BIGINT, merged_at TIMESTAMP);
COMMENT ON TABLE segment_data IS 'Segments already merged: one of the same name and size is not read again.';
COMMENT ON COLUMN segment_data.name IS 'File name of the segment.';
COMMENT ON COLUMN segment_data.bytes IS 'Its size.';
COMMENT ON COLUMN segment_data.spans IS 'Spans that it held.';
COMMENT ON COLUMN segment_data.merged_at IS 'When it was merged (UTC).';

CREATE TABLE IF NOT EXISTS span_data (
    trace_id VARCHAR, span_id VARCHAR, parent_span_id VARCHAR, name VARCHAR, kind VARCHAR,
    start_ns BIGINT, end_ns BIGINT, status VARCHAR, status_message VARCHAR, service VARCHAR, scope VARCHAR,
    dialect VARCHAR, framework VARCHAR, path VARCHAR, run_id VARCHAR, probe_id VARCHAR, arm VARCHAR, stage VARCHAR,
    nested BOOLEAN, declared VARCHAR, effects VARCHAR, attributes JSON, events JSON, resource JSON
);
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS duplicate_of VARCHAR;
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS asked VARCHAR;
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS request_id VARCHAR;
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS outgoing STRUCT(
    content VARCHAR, hash VARCHAR, chars BIGINT, statistics VARCHAR, left_by VARCHAR, start_ns BIGINT
);
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS conversation VARCHAR;
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS session_id VARCHAR;
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS user_id VARCHAR;
ALTER TABLE span_data ADD COLUMN IF NOT EXISTS query VARCHAR;
COMMENT ON TABLE span_data IS 'Every span, once for each (trace_id, span_id).';
COMMENT ON COLUMN span_data.trace_id IS 'Trace id, 32 hex digits.';
COMMENT ON COLUMN span_data.span_id IS 'Span id, 16 hex digits.';
COMMENT ON COLUMN span_data.parent_span_id IS 'Span id of the parent; NULL for a root.';
COMMENT ON COLUMN span_data.name IS 'Span name.';
COMMENT ON COLUMN span_data.kind IS 'OpenTelemetry span kind.';
COMMENT ON COLUMN span_data.start_ns IS 'Start, nanoseconds since 1970 (UTC).';
COMMENT ON COLUMN span_data.end_ns IS 'End, nanoseconds since 1970 (UTC).';
COMMENT ON COLUMN span_data.status IS 'OK, ERROR or UNSET.';
COMMENT ON COLUMN span_data.status_message IS 'Description of the status, where it may be kept.';
COMMENT ON COLUMN span_data.service IS 'Resource attribute service.name.';
COMMENT ON COLUMN span_data.scope IS 'Instrumentation scope (tracer name).';
COMMENT ON COLUMN span_data.dialect IS 'Whose attribute names these are: ragtrace, another instrumentation''s, or otel where nobody knows them.';
COMMENT ON COLUMN span_data.framework IS 'Taken out of the attributes, as all down to effects, so that no view has to parse texts for it.';
COMMENT ON COLUMN span_data.path IS 'How the pipeline was called: invoke, ainvoke, stream, astream, batch, abatch.';
COMMENT ON COLUMN span_data.run_id IS 'Audit run, where there is one.';
COMMENT ON COLUMN span_data.probe_id IS 'Probe, the same in every arm.';
COMMENT ON COLUMN span_data.arm IS 'Which defenses were on.';
COMMENT ON COLUMN span_data.stage IS 'retrieval, context, generation; defense for what may be one; NULL for other spans.';
COMMENT ON COLUMN span_data.nested IS 'The stage runs inside another one, so it crosses no hook.';
COMMENT ON COLUMN span_data.declared IS 'On the root of a request: JSON object, defense to the hooks it claims.';
COMMENT ON COLUMN span_data.effects IS 'JSON list: what each run of a defense did here.';
COMMENT ON COLUMN span_data.attributes IS 'Span attributes, one JSON object.';
COMMENT ON COLUMN span_data.events IS 'Span events, one JSON list.';
COMMENT ON COLUMN span_data.resource IS 'Resource attributes, one JSON object.';
COMMENT ON COLUMN span_data.duplicate_of IS 'Span id of the span that tells the same call and more of it; that one is shown.';
COMMENT ON COLUMN span_data.asked IS 'On a model call of another instrumentation: the only retrieval query of its trace.';
COMMENT ON COLUMN span_data.request_id IS 'The request that a span of ours belongs to: the span id of its nearest root; empty where there is none, NULL where that is not known yet.';
COMMENT ON COLUMN span_data.outgoing IS 'What observed defenses left of the answer of this model call, and the span that tells it last; NULL where they left it as it was.';
COMMENT ON COLUMN span_data.conversation IS 'Conversation that this span names, in the attributes of any instrumentation; as the two below.';
COMMENT ON COLUMN span_data.session_id IS 'Session that it names.';
COMMENT ON COLUMN span_data.user_id IS 'User that it names.';
COMMENT ON COLUMN span_data.query IS 'What was asked, where this span tells it.';

CREATE TABLE IF NOT EXISTS outgoing_data (
    trace_id VARCHAR, span_id VARCHAR, content VARCHAR, hash VARCHAR, chars BIGINT, statistics VARCHAR, left_by VARCHAR,
    start_ns BIGINT
);
COMMENT ON TABLE outgoing_data IS 'The same of model calls whose own span has not come yet.';
COMMENT ON COLUMN outgoing_data.trace_id IS 'Trace of the model call.';
COMMENT ON COLUMN outgoing_data.span_id IS 'Its span.';
COMMENT ON COLUMN outgoing_data.content IS 'What was left of the answer; NULL where the capture mode keeps no text.';
COMMENT ON COLUMN outgoing_data.hash IS 'Its digest.';
COMMENT ON COLUMN outgoing_data.chars IS 'Its length, in characters.';
COMMENT ON COLUMN outgoing_data.statistics IS 'JSON: what was computed of it in the app.';
COMMENT ON COLUMN outgoing_data.left_by IS 'The span that tells it.';
COMMENT ON COLUMN outgoing_data.start_ns IS 'Start of that span, nanoseconds since 1970 (UTC).';

CREATE TABLE IF NOT EXISTS entity_data (
    trace_id VARCHAR, span_id VARCHAR, type VARCHAR, text VARCHAR
);
ALTER TABLE entity_data ADD COLUMN IF NOT EXISTS left_by VARCHAR;
COMMENT ON TABLE entity_data IS 'Named entities found in generated text when its span was merged.';
COMMENT ON COLUMN entity_data.trace_id IS 'Trace of the generation.';
COMMENT ON COLUMN entity_data.span_id IS 'Span of the generation.';
COMMENT ON COLUMN entity_data.type IS 'One of the eleven types of ragtrace.ner.';
COMMENT ON COLUMN entity_data.text IS 'The entity as it was written.';
COMMENT ON COLUMN entity_data.left_by IS 'In what an observed defense left of the answer: the span that tells it. NULL: in what the model said.';

CREATE TABLE IF NOT EXISTS exposure_data (
    trace_id VARCHAR, span_id VARCHAR, document_id VARCHAR, phase VARCHAR, rank BIGINT, longest_run BIGINT,
    containment DOUBLE, entities_leaked BIGINT, answer_words BIGINT, path VARCHAR, service VARCHAR, route VARCHAR,
    session VARCHAR, user_id VARCHAR, run_id VARCHAR, arm VARCHAR, nested BOOLEAN, start_ns BIGINT
);
COMMENT ON TABLE exposure_data IS 'What of each document reached each answer: one row a generation and document that it could have read; no text.';
COMMENT ON COLUMN exposure_data.trace_id IS 'Trace of the generation.';
COMMENT ON COLUMN exposure_data.span_id IS 'Span of the generation.';
COMMENT ON COLUMN exposure_data.document_id IS 'The document.';
COMMENT ON COLUMN exposure_data.phase IS 'in_prompt, after_defense or retrieved: how far the document is known to have come.';
COMMENT ON COLUMN exposure_data.rank IS 'Its place there, from 1.';
COMMENT ON COLUMN exposure_data.longest_run IS 'Words of the longest run that stands in both; NULL where that cannot be told.';
COMMENT ON COLUMN exposure_data.containment IS 'Share of the answer''s different five-word runs that stand in the document; NULL where that cannot be told.';
COMMENT ON COLUMN exposure_data.entities_leaked IS 'Different entities of the answer that are in the document and not in the question; NULL where that cannot be told.';
COMMENT ON COLUMN exposure_data.answer_words IS 'Words of the answer; NULL where its text was not kept.';
COMMENT ON COLUMN exposure_data.path IS 'How the pipeline was called.';
COMMENT ON COLUMN exposure_data.service IS 'Resource attribute service.name.';
COMMENT ON COLUMN exposure_data.route IS 'http.route of a span of the trace; NULL where none tells it.';
COMMENT ON COLUMN exposure_data.session IS 'As in the view sessions; NULL in audits.';
COMMENT ON COLUMN exposure_data.user_id IS 'Whose request it was; NULL where no span tells it, and in audits.';
COMMENT ON COLUMN exposure_data.run_id IS 'Audit run, where there is one.';
COMMENT ON COLUMN exposure_data.arm IS 'Which defenses were on.';
COMMENT ON COLUMN exposure_data.nested IS 'The generation runs inside another stage.';
COMMENT ON COLUMN exposure_data.start_ns IS 'Start of the generation, nanoseconds since 1970 (UTC).';

CREATE TABLE IF NOT EXISTS exposure_mark_data (row_id BIGINT, trace_id VARCHAR, span_id VARCHAR);
INSERT INTO exposure_mark_data SELECT -1, NULL, NULL WHERE NOT EXISTS (FROM exposure_mark_data);
COMMENT ON TABLE exposure_mark_data IS 'The last span that exposure_data takes into account, with all before it; one row.';
COMMENT ON COLUMN exposure_mark_data.row_id IS 'Its place in span_data; -1 where there is none.';
COMMENT ON COLUMN exposure_mark_data.trace_id IS 'Its trace: places change where a database is written anew.';
COMMENT ON COLUMN exposure_mark_data.span_id IS 'Its id.';

CREATE TABLE IF NOT EXISTS score_data (
    run_id VARCHAR, probe_id VARCHAR, arm VARCHAR, attack VARCHAR, metric VARCHAR, value DOUBLE
);
COMMENT ON TABLE score_data IS 'One number a probe, arm and metric; computed from the traces alone.';
COMMENT ON COLUMN score_data.run_id IS 'Audit run.';
COMMENT ON COLUMN score_data.probe_id IS 'Probe, the same in every arm.';
COMMENT ON COLUMN score_data.arm IS 'Which defenses were on.';
COMMENT ON COLUMN score_data.attack IS 'Attack that made the probe.';
COMMENT ON COLUMN score_data.metric IS 'Name of the metric.';
COMMENT ON COLUMN score_data.value IS 'The score; NULL where there is no data.';

CREATE TABLE IF NOT EXISTS result_data (
    run_id VARCHAR, arm VARCHAR, defense VARCHAR, attack VARCHAR, corpus VARCHAR, metric VARCHAR, channel VARCHAR,
    value DOUBLE, ci_low DOUBLE, ci_high DOUBLE, n BIGINT, interpretable VARCHAR, reason VARCHAR, signature VARCHAR,
    path_of_effect VARCHAR, certified VARCHAR, certificate VARCHAR
);
ALTER TABLE result_data ADD COLUMN IF NOT EXISTS path_of_effect VARCHAR;
ALTER TABLE result_data ADD COLUMN IF NOT EXISTS certified VARCHAR;
ALTER TABLE result_data ADD COLUMN IF NOT EXISTS certificate VARCHAR;
COMMENT ON TABLE result_data IS 'One number an arm and metric, with whether it may be read.';
COMMENT ON COLUMN result_data.run_id IS 'Audit run.';
COMMENT ON COLUMN result_data.arm IS 'Which defenses were on; none for the undefended arm.';
COMMENT ON COLUMN result_data.defense IS 'The arm''s defense; NULL in the undefended arm.';
COMMENT ON COLUMN result_data.attack IS 'Attack whose probes were scored.';
COMMENT ON COLUMN result_data.corpus IS 'Corpus under attack.';
COMMENT ON COLUMN result_data.metric IS 'Name of the metric.';
COMMENT ON COLUMN result_data.channel IS 'What the metric observes.';
COMMENT ON COLUMN result_data.value IS 'The number; NULL where there is no data (the reason says why).';
COMMENT ON COLUMN result_data.ci_low IS 'Lower end of the 95 % interval.';
COMMENT ON COLUMN result_data.ci_high IS 'Upper end of the 95 % interval.';
COMMENT ON COLUMN result_data.n IS 'How many probes, documents or canaries it rests on.';
COMMENT ON COLUMN result_data.interpretable IS 'interpretable, nuisance, indirect, reversal, entangled or no data.';
COMMENT ON COLUMN result_data.reason IS 'Why, in one sentence.';
COMMENT ON COLUMN result_data.signature IS 'Version, schema, metric, parameters, seed, n, model.';
COMMENT ON COLUMN result_data.path_of_effect IS 'retrieval (query, retrieval, content), generation (prompt, response) or both: where the arm''s defenses changed something; NULL where nowhere.';
COMMENT ON COLUMN result_data.certified IS 'For entity leakage: yes or no, by canaries; NULL where they decide nothing.';
COMMENT ON COLUMN result_data.certificate IS 'Why, with the counts and the test.';

CREATE TABLE IF NOT EXISTS tradeoff_data (
    run_id VARCHAR, arm VARCHAR, attack VARCHAR, corpus VARCHAR, channel VARCHAR, kind VARCHAR, type VARCHAR,
    metric VARCHAR, before DOUBLE, after DOUBLE, difference DOUBLE, ci_low DOUBLE, ci_high DOUBLE, change DOUBLE,
    change_low DOUBLE, change_high DOUBLE, n BIGINT, differing BIGINT, direction VARCHAR, note VARCHAR
);
COMMENT ON TABLE tradeoff_data IS 'Leakage of each entity type and canary family with an arm''s defenses against that without, pair by pair.';
COMMENT ON COLUMN tradeoff_data.run_id IS 'Audit run.';
COMMENT ON COLUMN tradeoff_data.arm IS 'Which defenses were on.';
COMMENT ON COLUMN tradeoff_data.attack IS 'Attack whose probes were compared.';
COMMENT ON COLUMN tradeoff_data.corpus IS 'Corpus under attack.';
COMMENT ON COLUMN tradeoff_data.channel IS 'Where it was looked for.';
COMMENT ON COLUMN tradeoff_data.kind IS 'entity or canary.';
COMMENT ON COLUMN tradeoff_data.type IS 'Entity type, or canary family.';
COMMENT ON COLUMN tradeoff_data.metric IS 'The metric of the same thing in result_data, where there is one.';
COMMENT ON COLUMN tradeoff_data.before IS 'Without the defenses: entities a response, or share of canaries.';
COMMENT ON COLUMN tradeoff_data.after IS 'With them.';
COMMENT ON COLUMN tradeoff_data.difference IS 'after - before.';
COMMENT ON COLUMN tradeoff_data.ci_low IS 'Lower end of its paired 95 % interval.';
COMMENT ON COLUMN tradeoff_data.ci_high IS 'Upper end.';
COMMENT ON COLUMN tradeoff_data.change IS 'difference / before; NULL where nothing leaked before.';
COMMENT ON COLUMN tradeoff_data.change_low IS 'Lower end of its paired 95 % interval.';
COMMENT ON COLUMN tradeoff_data.change_high IS 'Upper end.';
COMMENT ON COLUMN tradeoff_data.n IS 'Pairs: probes answered in both arms, or canaries planted.';
COMMENT ON COLUMN tradeoff_data.differing IS 'Pairs that differ.';
COMMENT ON COLUMN tradeoff_data.direction IS 'lowers or raises; NULL where no difference is shown.';
COMMENT ON COLUMN tradeoff_data.note IS 'Why an interval or direction is missing.';

CREATE TABLE IF NOT EXISTS replication_data (
    run_id VARCHAR, arm VARCHAR, attack VARCHAR, corpus VARCHAR, metric VARCHAR, seeds BIGINT[], seed_values DOUBLE[],
    replicates BIGINT, within_low DOUBLE, within_high DOUBLE, between_low DOUBLE, between_high DOUBLE,
    document_low DOUBLE, document_high DOUBLE, repeats VARCHAR
);
COMMENT ON TABLE replication_data IS 'Each result by seed, with its three intervals.';
COMMENT ON COLUMN replication_data.run_id IS 'Audit run.';
COMMENT ON COLUMN replication_data.arm IS 'Which defenses were on.';
COMMENT ON COLUMN replication_data.attack IS 'Attack whose probes were scored.';
COMMENT ON COLUMN replication_data.corpus IS 'Corpus under attack.';
COMMENT ON COLUMN replication_data.metric IS 'Name of the metric.';
COMMENT ON COLUMN replication_data.seeds IS 'Seeds that have a number of their own; empty where the run has one seed.';
COMMENT ON COLUMN replication_data.seed_values IS 'These numbers.';
COMMENT ON COLUMN replication_data.replicates IS 'How many of these seeds repeat no earlier one.';
COMMENT ON COLUMN replication_data.within_low IS 'Lower end of the interval over probes.';
COMMENT ON COLUMN replication_data.within_high IS 'Upper end.';
COMMENT ON COLUMN replication_data.between_low IS 'Lower end of the interval over seeds.';
COMMENT ON COLUMN replication_data.between_high IS 'Upper end.';
COMMENT ON COLUMN replication_data.document_low IS 'Lower end of the interval over documents.';
COMMENT ON COLUMN replication_data.document_high IS 'Upper end.';
COMMENT ON COLUMN replication_data.repeats IS 'Another arm whose every answer is the same.';

CREATE TABLE IF NOT EXISTS inventory_data (
    defense VARCHAR, kind VARCHAR, hook VARCHAR, status VARCHAR, file VARCHAR, line BIGINT, reason VARCHAR
);
COMMENT ON TABLE inventory_data IS 'What the source says: one row for each defense and hook found.';
COMMENT ON COLUMN inventory_data.defense IS 'Name under which the defense runs.';
COMMENT ON COLUMN inventory_data.kind IS 'ragtrace, langchain, llama_index or duck.';
COMMENT ON COLUMN inventory_data.hook IS 'The hook.';
COMMENT ON COLUMN inventory_data.status IS 'active, conditional, stub, pass_through, dead or unknown.';
COMMENT ON COLUMN inventory_data.file IS 'Source file.';
COMMENT ON COLUMN inventory_data.line IS 'Line of the hook.';
COMMENT ON COLUMN inventory_data.reason IS 'Why, in one sentence.';

CREATE TABLE IF NOT EXISTS battery_data (
    defense VARCHAR, kind VARCHAR, hook VARCHAR, family VARCHAR, status VARCHAR, n BIGINT, changed BIGINT,
    removed BIGINT, kinds VARCHAR[], mutates BOOLEAN, errors BIGINT, error VARCHAR, deterministic BOOLEAN,
    stateful BOOLEAN, seconds DOUBLE
);
COMMENT ON TABLE battery_data IS 'What the battery says: one row for each defense, hook and family of inputs.';
COMMENT ON COLUMN battery_data.defense IS 'Name under which the defense runs.';
COMMENT ON COLUMN battery_data.kind IS 'ragtrace, langchain, llama_index or duck; NULL where that was not found out.';
COMMENT ON COLUMN battery_data.hook IS 'The hook; NULL where nothing could be fed to the defense (the error says why).';
COMMENT ON COLUMN battery_data.family IS 'The family of inputs.';
COMMENT ON COLUMN battery_data.status IS 'changes, leaves, error or not_tried.';
COMMENT ON COLUMN battery_data.n IS 'Specimens fed.';
COMMENT ON COLUMN battery_data.changed IS 'Specimens of which anything was changed.';
COMMENT ON COLUMN battery_data.removed IS 'Specimens of which nothing that was to be protected was left; NULL where there is nothing to protect.';
COMMENT ON COLUMN battery_data.kinds IS 'What was changed: some of text, order, ids, scores, metadata, count.';
COMMENT ON COLUMN battery_data.mutates IS 'Whether the input itself was edited.';
COMMENT ON COLUMN battery_data.errors IS 'Specimens at which the hook failed.';
COMMENT ON COLUMN battery_data.error IS 'The first error.';
COMMENT ON COLUMN battery_data.deterministic IS 'Whether a second process gave the same; NULL where that could not be told.';
COMMENT ON COLUMN battery_data.stateful IS 'Whether a second turn on the same instance gave something else; NULL where that could not be told.';
COMMENT ON COLUMN battery_data.seconds IS 'Mean time of one call.';

CREATE TABLE IF NOT EXISTS likelihood_data (
    run_id VARCHAR, probe_id VARCHAR, arm VARCHAR, kind VARCHAR, variant INTEGER, model VARCHAR, text_chars BIGINT,
    logprobs FLOAT[], mu FLOAT[], sigma FLOAT[], note VARCHAR
);
COMMENT ON TABLE likelihood_data IS 'What a language model says of the targets'' own tokens; no text.';
COMMENT ON COLUMN likelihood_data.run_id IS 'Audit run.';
COMMENT ON COLUMN likelihood_data.probe_id IS 'Probe, the same in every arm.';
COMMENT ON COLUMN likelihood_data.arm IS 'Which defenses were on; NULL where the text stands alone, which is the same in all arms.';
COMMENT ON COLUMN likelihood_data.kind IS 'context, neighbour, prefixed: after the prompt that the app''s model was given; alone, neighbour_alone, prefixed_alone: without it.';
COMMENT ON COLUMN likelihood_data.variant IS 'Number of the changed version of the target (neighbour); else 0.';
COMMENT ON COLUMN likelihood_data.model IS 'Model that was asked, and how.';
COMMENT ON COLUMN likelihood_data.text_chars IS 'Length of the scored text, in characters.';
COMMENT ON COLUMN likelihood_data.logprobs IS 'Log-probability (natural logarithm) of each token; empty where nothing could be scored (the note says why).';
COMMENT ON COLUMN likelihood_data.mu IS 'Mean log-probability of a token drawn from the model''s own distribution at that place; empty for neighbours and prefixed.';
COMMENT ON COLUMN likelihood_data.sigma IS 'Its standard deviation.';
COMMENT ON COLUMN likelihood_data.note IS 'What was cut from the left of the prompt, or why there are no tokens.';

CREATE TABLE IF NOT EXISTS loss_data (
    process VARCHAR, pid BIGINT, service VARCHAR, started_ns BIGINT, seen_at TIMESTAMP, alive BOOLEAN,
    ended BIGINT, written BIGINT, dropped BIGINT, failed BIGINT, rotated BIGINT
);
COMMENT ON TABLE loss_data IS 'What became of the spans of each process that wrote into the spool.';
COMMENT ON COLUMN loss_data.process IS 'The process, as in the names of its segments.';
COMMENT ON COLUMN loss_data.pid IS 'Its process id.';
COMMENT ON COLUMN loss_data.service IS 'Its service.name.';
COMMENT ON COLUMN loss_data.started_ns IS 'When it began to record, nanoseconds since 1970 (UTC).';
COMMENT ON COLUMN loss_data.seen_at IS 'When these numbers were read (UTC).';
COMMENT ON COLUMN loss_data.alive IS 'Whether it was still running then.';
COMMENT ON COLUMN loss_data.ended IS 'Spans that ended there.';
COMMENT ON COLUMN loss_data.written IS 'Of these, in segments.';
COMMENT ON COLUMN loss_data.dropped IS 'Of these, dropped because too many waited.';
COMMENT ON COLUMN loss_data.failed IS 'Of these, not written because the disk refused.';
COMMENT ON COLUMN loss_data.rotated IS 'Of the written ones, removed before anybody merged them, to keep the spool''s limit.';

CREATE TABLE IF NOT EXISTS alarm_data (
    kind VARCHAR, key VARCHAR, subject VARCHAR, message VARCHAR, trace_id VARCHAR, seen_at TIMESTAMP,
    raised_at TIMESTAMP, sent BOOLEAN
);
COMMENT ON TABLE alarm_data IS 'What ragtrace watch raised; each (kind, key) once, ever.';
COMMENT ON COLUMN alarm_data.kind IS 'Name of the alarm, as its file in ragtrace/watching/alarms.';
COMMENT ON COLUMN alarm_data.key IS 'What it is about: the same is not raised again.';
COMMENT ON COLUMN alarm_data.subject IS 'Defense and hook, canary, session, or service.';
COMMENT ON COLUMN alarm_data.message IS 'What was found.';
COMMENT ON COLUMN alarm_data.trace_id IS 'A trace that shows it; NULL where none does.';
COMMENT ON COLUMN alarm_data.seen_at IS 'When it happened in the app (UTC).';
COMMENT ON COLUMN alarm_data.raised_at IS 'When it was found in the store (UTC).';
COMMENT ON COLUMN alarm_data.sent IS 'Whether the webhook has it, or there is none.';

CREATE TABLE IF NOT EXISTS session_trace_data (trace_id VARCHAR, session VARCHAR, start_ns BIGINT);
COMMENT ON TABLE session_trace_data IS 'Whose each trace of production traffic is, as far as ragtrace detect has read.';
COMMENT ON COLUMN session_trace_data.trace_id IS 'The trace.';
COMMENT ON COLUMN session_trace_data.session IS 'Its session, as in the view sessions.';
COMMENT ON COLUMN session_trace_data.start_ns IS 'Its start, nanoseconds since 1970 (UTC).';

CREATE TABLE IF NOT EXISTS detection_data (
    session VARCHAR, score DOUBLE, threshold DOUBLE, reasons VARCHAR[], signals JSON, requests BIGINT, trace_id VARCHAR
);
COMMENT ON TABLE detection_data IS 'What ragtrace detect says of each session; no text of it.';
COMMENT ON COLUMN detection_data.session IS 'The session, as in the view sessions.';
COMMENT ON COLUMN detection_data.score IS 'How much it looks like an attack, in [0, 1]; NULL where nothing of it can be read.';
COMMENT ON COLUMN detection_data.threshold IS 'Score from which it counts as suspicious.';
COMMENT ON COLUMN detection_data.reasons IS 'The signals that made the score, in words, the strongest first.';
COMMENT ON COLUMN detection_data.signals IS 'JSON object: signal to the requests that showed it; null where it could not be read.';
COMMENT ON COLUMN detection_data.requests IS 'Requests that were looked at.';
COMMENT ON COLUMN detection_data.trace_id IS 'The request that looks most like an attack.';
