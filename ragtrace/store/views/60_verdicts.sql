-- The run-time ledger by path: the same defense may act on invoke and not on stream.
CREATE OR REPLACE VIEW verdict_paths AS
WITH ran AS (
    SELECT defense, hook, path, count(*) AS runs, count(*) FILTER (status = 'changed') AS changed,
        count(*) FILTER (late) AS late, count(*) FILTER (status = 'error') AS errors
    FROM effects GROUP BY ALL
), crossed AS (
    SELECT defense, hook, path, count(*) AS crossings, count(*) FILTER (NOT ran) AS bypassed FROM coverage GROUP BY ALL
)
SELECT defense, hook, path, coalesce(crossings, 0) AS crossings, coalesce(bypassed, 0) AS bypassed,
    coalesce(runs, 0) AS runs, coalesce(changed, 0) AS changed, coalesce(late, 0) AS late, coalesce(errors, 0) AS errors
FROM crossed FULL JOIN ran USING (defense, hook, path);

-- Where does each defense act? Three witnesses, joined: the source, the battery, and the run-time ledger.
CREATE OR REPLACE VIEW verdicts AS
WITH ran AS (
    SELECT defense, hook, count(*) AS runs, count(*) FILTER (status = 'changed') AS changed,
        count(*) FILTER (status = 'error') AS errors, count(*) FILTER (late) AS late,
        string_agg(DISTINCT error, ', ' ORDER BY error) AS error
    FROM effects GROUP BY defense, hook
), covered AS (
    SELECT defense, hook, count(*) AS crossings, count(*) FILTER (NOT ran) AS missed,
        string_agg(DISTINCT path, ', ' ORDER BY path) FILTER (NOT ran) AS missed_paths
    FROM coverage GROUP BY defense, hook
), claimed AS (
    SELECT DISTINCT defense, hook FROM claims
), source AS (
    -- several classes may have the name under which a defense ran: where their sources differ, which one is not known
    SELECT defense, hook, CASE WHEN count(DISTINCT status) = 1 THEN any_value(status) ELSE 'unknown' END AS status,
        CASE WHEN count(DISTINCT status) = 1 THEN min_by(reason, (file, line)) ELSE concat('classes of this name differ: ',
            string_agg(format('{} ({}:{})', status, file, line), ', ' ORDER BY file, line)) END AS reason,
        min(file) AS file, min_by(line, (file, line)) AS line
    FROM inventory_data GROUP BY defense, hook
), battery AS (
    SELECT defense, hook, sum(n) AS specimens, count(*) AS families, max(error) AS battery_error,
        string_agg(family, ', ' ORDER BY family) FILTER (status = 'changes') AS acts_on,
        CASE WHEN bool_or(status = 'changes') THEN 'changes' WHEN bool_or(status = 'error') THEN 'error'
            WHEN bool_or(status = 'leaves') THEN 'leaves' END AS battery_status
    FROM battery_data WHERE hook IS NOT NULL GROUP BY defense, hook
), pairs AS (
    SELECT defense, hook FROM ran UNION SELECT defense, hook FROM covered
    UNION SELECT defense, hook FROM claimed UNION SELECT defense, hook FROM source UNION SELECT defense, hook FROM battery
), joined AS (
    SELECT p.defense, p.hook, s.status AS source_status, s.reason, s.file, s.line,
        b.battery_status, b.acts_on, b.specimens, b.families, b.battery_error,
        coalesce(r.runs, 0) AS runs, coalesce(r.changed, 0) AS changed, coalesce(r.errors, 0) AS errors,
        coalesce(r.late, 0) AS late, r.error,
        coalesce(c.crossings, 0) AS crossings, coalesce(c.missed, 0) AS missed, c.missed_paths,
        (m.defense IS NOT NULL OR s.defense IS NOT NULL OR b.defense IS NOT NULL) AS declared,
        p.defense IN (SELECT defense FROM claimed) OR p.defense IN (SELECT defense FROM source) AS known,
        -- a hook that the battery has seen acting is no stub, whatever its source looks like
        CASE WHEN coalesce(b.battery_status, '') <> 'changes' THEN s.status END AS inert_status
    FROM pairs p LEFT JOIN ran r USING (defense, hook) LEFT JOIN covered c USING (defense, hook)
    LEFT JOIN claimed m USING (defense, hook) LEFT JOIN source s USING (defense, hook)
    LEFT JOIN battery b USING (defense, hook)
)
SELECT defense, hook, source_status,
    CASE WHEN runs = 0 AND missed > 0 THEN 'bypassed' WHEN runs = 0 THEN 'not_run' WHEN errors = runs THEN 'error'
        WHEN changed > 0 THEN 'changed' ELSE 'unchanged' END AS runtime_status,
    CASE WHEN missed > 0 THEN 'bypassed'
        WHEN changed = 0 AND inert_status = 'stub' THEN 'silent_stub'
        WHEN changed = 0 AND inert_status = 'pass_through' THEN 'pass_through'
        WHEN errors > 0 AND changed = 0 THEN 'error'
        WHEN changed > 0 AND known AND NOT declared THEN 'undeclared'
        WHEN changed > 0 THEN 'active'
        WHEN runs = 0 THEN 'not_run'
        WHEN inert_status = 'dead' THEN 'pass_through'
        WHEN inert_status = 'unknown' THEN 'unknown'
        ELSE 'dormant' END AS verdict,
    concat_ws('; ',
        CASE WHEN runs > 0 THEN format('changed something in {} of {} runs', changed, runs) END,
        CASE WHEN errors > 0 THEN format('failed in {} ({})', errors, coalesce(error, 'no error name kept')) END,
        CASE WHEN missed > 0 THEN format('its hook was crossed without it in {} of {} crossings (path {})', missed, crossings, missed_paths) END,
        CASE WHEN late > 0 THEN format('in {} of its runs the text had left on the stream before it ran', late) END,
        CASE WHEN runs = 0 AND missed = 0 THEN 'its hook was never crossed here' END,
        CASE WHEN source_status IS NOT NULL THEN concat('source says ', source_status, ': ' || reason, ' (' || file || coalesce(':' || line, '') || ')') END,
        CASE WHEN battery_status = 'changes' THEN format('the battery says it acts on {}', acts_on)
            WHEN battery_status = 'leaves' THEN format('the battery could not make it act ({} specimens of {} families)', specimens, families)
            WHEN battery_status = 'error' THEN concat('the battery could not try it', ': ' || battery_error) END,
        CASE WHEN source_status IS NULL AND battery_status IS NULL AND runs > 0 AND changed = 0 AND errors = 0
            THEN 'no source inventory is stored, so a stub cannot be told from a defense that met nothing to change' END,
        CASE
            WHEN changed > 0 AND source_status IN ('stub', 'pass_through', 'dead')
                THEN 'source and run time disagree: the run time is right'
            WHEN changed > 0 AND battery_status = 'leaves'
                THEN 'battery and run time disagree: it acts on what the battery does not hold'
            WHEN battery_status = 'changes' AND source_status IN ('stub', 'pass_through', 'dead')
                THEN 'source and battery disagree: the battery is right'
            WHEN changed = 0 AND runs > errors AND (battery_status = 'changes' OR source_status IN ('active', 'conditional'))
                THEN 'it met nothing to change in this traffic'
        END
    ) AS evidence,
    runs, changed, errors, crossings, missed AS bypassed, missed_paths AS bypassed_paths, file, line,
    battery_status, acts_on
FROM joined
UNION ALL
SELECT defense, NULL, NULL, 'unknown', 'unknown',
    format('seen at work in {} spans of {}, which keep no comparison of before and after: at which hook it acts, and '
        'whether it changed anything, is not known', count(*), string_agg(DISTINCT dialect, ', ' ORDER BY dialect)),
    count(*), NULL, count(*) FILTER (status = 'ERROR'), NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM foreign_parts GROUP BY defense;
