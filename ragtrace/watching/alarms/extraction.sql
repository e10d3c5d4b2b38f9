-- A session looks like an attack: extraction, or probing for what is indexed.
-- Once for each session: the first time that its score reaches the threshold (`ragtrace detect` says how it is made).
SELECT session AS key, session AS subject,
    format('looks like an attack (score {:.2f}): {}', score, array_to_string(reasons, '; ')) AS message,
    coalesce(trace_id, first_trace) AS trace_id, last_time AS seen_at
FROM suspicions WHERE suspicious
