-- What `ragtrace watch` has raised, each once.
CREATE OR REPLACE VIEW alarms AS
SELECT kind, subject, message, trace_id, seen_at, raised_at, sent, key FROM alarm_data;
