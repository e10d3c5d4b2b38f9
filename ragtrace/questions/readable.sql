-- Which numbers may be read?
-- :run TEXT NULL one audit run; without, all
-- One row a result that says something about the defense: those that do not (nuisance, entangled, no data) are left out.
SELECT run_id, arm, attack, corpus, metric, value, ci_low, ci_high, n, interpretable, reason
FROM results
WHERE interpretable IN ('interpretable', 'indirect') AND coalesce(run_id = $run, true)
ORDER BY run_id, metric, arm, corpus
