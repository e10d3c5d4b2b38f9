"""Forgetting: the traces of one person or document, out of the database, its log, its spool, and the files' bytes."""

from __future__ import annotations

from pathlib import Path

from ragtrace.errors import StoreError, UsageError
from ragtrace.record.spool import SUFFIX, spool_of
from ragtrace.store.compacting import rewrite
from ragtrace.store.database import existing, opened_alone
from ragtrace.store.retention import KEYS, Removed, remove_of

KINDS = (*KEYS, "document", "trace")


def forget(database: str | Path, what: str, id: str, *, key: str | None = None) -> Removed:
    """Deletes every trace of one ``user``, ``session``, ``conversation``, ``document`` or ``trace``, all or none.

    Segments that wait are merged first; then the file is rewritten, so that nothing of them is left in its bytes.

    :raises StoreError: the database cannot be opened alone or rewritten, or there are segments that cannot be read:
        nobody knows whose spans they hold.
    """
    if what not in KINDS:
        raise UsageError(f"forget {what!r}; expected one of {', '.join(KINDS)}")
    if not id:
        raise UsageError(f"the id of the {what} is empty; nothing was deleted")
    path = existing(database)
    waiting = sorted(spool_of(path).glob(f"*{SUFFIX}"))
    with opened_alone(path, key) as connection:
        removed = remove_of(connection, what, id)
        rewrite(connection, path, key)
    if unread := [segment for segment in waiting if segment.exists()]:
        raise StoreError(
            f"{removed.traces} traces of this {what} are deleted, but {len(unread)} segments cannot be read, and may "
            f"hold more: {', '.join(map(str, unread))}; remove them, or repair them and forget again"
        )
    return removed
