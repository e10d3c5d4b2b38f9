"""What the processes counted, from their tally files into the database."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ragtrace.record.spool import spool_of
from ragtrace.record.tally import COUNTS, SUFFIX, read

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb


def take_losses(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    """Stores every process's counts in place of what was stored before; removes the file of one that is gone.

    Call it after the merge: what a process wrote is then counted by its segments, whatever it had time to count.
    """
    for file in sorted(spool_of(database).glob(f".*{SUFFIX}")):
        if (found := read(file)) is None:
            continue
        connection.execute("BEGIN")
        try:
            connection.execute("DELETE FROM loss_data WHERE process = ?", [found.process])
            connection.execute(
                "INSERT INTO loss_data VALUES (?, ?, ?, ?, current_localtimestamp(), ?, ?, ?, ?, ?, ?)",
                [found.process, found.pid, found.service, found.started_ns, found.alive]
                + [found.counts[name] for name in COUNTS],
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        if not found.alive:
            with suppress(OSError):
                file.unlink()
