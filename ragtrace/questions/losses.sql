-- What was lost on the way from the app to here?
-- One row a process that wrote: spans that ended there, and what became of them.
SELECT * FROM losses ORDER BY ALL
