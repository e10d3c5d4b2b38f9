-- What does each arm change against the undefended one?
-- :metric TEXT NULL one metric; without, all
-- One row a run, metric and arm with a number: beside it the undefended arm's, and whether the intervals are apart.
SELECT r.run_id, r.metric, r.attack, r.corpus, r.arm, n.value AS undefended, r.value,
    round(r.value - n.value, 4) AS change, r.ci_high < n.ci_low OR r.ci_low > n.ci_high AS intervals_apart,
    r.interpretable
FROM results r JOIN results n USING (run_id, metric, attack, corpus)
WHERE n.arm = 'none' AND r.arm <> 'none' AND r.value IS NOT NULL AND n.value IS NOT NULL
    AND coalesce(r.metric = $metric, true)
ORDER BY ALL
