-- What each defense trades. A row lowers or raises where its paired interval says so; where an arm does both in one
-- channel, of entities or canaries, each of these rows is part of a trade-off.
CREATE OR REPLACE VIEW tradeoffs AS
WITH arms AS (
    SELECT DISTINCT run_id, arm, defense FROM result_data
), judged AS (
    SELECT *, bool_or(direction = 'lowers') OVER sides AND bool_or(direction = 'raises') OVER sides AS both_ways
    FROM tradeoff_data WINDOW sides AS (PARTITION BY run_id, arm, attack, corpus, channel)
)
SELECT j.run_id, j.arm, a.defense, j.attack, j.corpus, j.channel, j.kind, j.type, j.before, j.after, j.difference,
    j.ci_low, j.ci_high, j.change, j.change_low, j.change_high, j.n, j.differing, j.direction,
    j.direction IS NOT NULL AND coalesce(j.both_ways, false) AS trade_off, r.interpretable, r.certified, j.note
FROM judged j LEFT JOIN arms a USING (run_id, arm)
LEFT JOIN result_data r ON (r.run_id, r.arm, r.attack, r.corpus, r.metric) = (j.run_id, j.arm, j.attack, j.corpus, j.metric);

-- Each result with its three intervals, and how far it may be carried. One row a result, beside it: `results` keeps the
-- interval that its metric is judged by.
CREATE OR REPLACE VIEW replications AS
SELECT r.run_id, r.arm, r.defense, r.attack, r.corpus, r.metric, r.channel, r.value, p.within_low, p.within_high,
    p.between_low, p.between_high, p.document_low, p.document_high, p.seeds, p.seed_values,
    CASE WHEN len(p.seeds) = 0 AND r.value IS NOT NULL THEN 1 ELSE p.replicates END AS replicates,
    CASE WHEN r.value IS NULL THEN 'no data' WHEN replicates < 2 THEN 'case study' WHEN replicates < 5 THEN 'preliminary'
        WHEN r.interpretable NOT IN ('interpretable', 'reversal') THEN 'not readable' ELSE 'finding' END AS standing,
    p.repeats, r.interpretable
FROM result_data r JOIN replication_data p USING (run_id, arm, attack, corpus, metric);
