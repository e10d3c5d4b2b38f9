-- Which planted canaries turned up, and where?
-- One row a canary and channel: in how many traces, first and last when. Only the channel response is a leak; in the
-- others it was on its way.
SELECT canary, h.family, h.channel, h.arm, count(DISTINCT h.trace_id) AS traces,
    min(start_time) AS first_seen, max(start_time) AS last_seen, max_by(h.trace_id, start_time) AS a_trace
FROM canary_hits h JOIN stages s USING (trace_id, span_id)
GROUP BY ALL
ORDER BY any_value(if(h.channel = 'response', 0, 1)), traces DESC, 1, 2, 3, 4
