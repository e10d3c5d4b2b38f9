-- Which defenses ran and changed nothing?
-- One row a defense and hook that never changed anything, with what the source says of it, and where.
SELECT defense, hook, runs, source_status, verdict, file, line, evidence
FROM verdicts WHERE runs > 0 AND changed = 0
ORDER BY verdict, runs DESC, defense, hook
