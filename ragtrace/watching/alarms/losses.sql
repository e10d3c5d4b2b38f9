-- Spans of a process are lost.
-- Once for each process: what is not here can be neither audited nor alarmed about.
SELECT process AS key, coalesce(service, process) AS subject,
    format('{} of {} spans of process {} lost (dropped {}, failed {}, rotated {}, killed {})', lost, ended, pid, dropped,
        failed, rotated, killed) AS message,
    NULL::VARCHAR AS trace_id, seen_at
FROM losses WHERE lost > 0
