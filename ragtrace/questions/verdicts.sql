-- Where does each defense really act?
-- One row a defense and hook, the worst first: the verdict of source, battery and run time, and what it rests on.
SELECT defense, hook, verdict, bypassed_paths, runs, changed, evidence
FROM verdicts
ORDER BY verdict IN ('active', 'not_run', 'dormant'), verdict, defense, hook
