-- What is missing of each process that wrote into the spool, and why.
-- Segments that were merged count as written even where the process was killed before it had counted them.
CREATE OR REPLACE VIEW losses AS
SELECT process, pid, service, make_timestamp(started_ns // 1000) AS started_at, seen_at, alive, ended,
    greatest(written, merged) AS written, dropped, failed, rotated,
    greatest(0, ended - greatest(written, merged) - dropped - failed) AS unwritten,
    if(alive, 0, unwritten) AS killed,
    dropped + failed + rotated + killed AS lost
FROM (
    SELECT l.*, coalesce((
        SELECT sum(s.spans) FROM segment_data s WHERE split_part(s.name, '-', 3) = l.process
    ), 0)::BIGINT AS merged
    FROM loss_data l
);
