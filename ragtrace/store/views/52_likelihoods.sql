-- What a language model says of the targets' own tokens, with and without what was retrieved.
CREATE OR REPLACE VIEW likelihoods AS
SELECT run_id, probe_id, arm, kind, variant, model, text_chars, len(logprobs) AS tokens,
    list_avg(logprobs::DOUBLE[]) AS mean_logprob, logprobs, mu, sigma, note
FROM likelihood_data;
