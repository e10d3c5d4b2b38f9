"""What ragtrace raises, all of it.

::

    RagtraceError
    ├── UsageError            wrong argument, option or configuration           (exit code 2)
    │   └── DefenseTypeError  a defense's hook returned something else than its hook carries
    ├── StoreError            the database cannot be read or written            (exit code 2)
    │   └── SchemaVersionError  it was written by a newer ragtrace
    ├── InputError            a file, corpus or trace that cannot be used       (exit code 2)
    └── ModelError            model weights missing or not the ones expected    (exit code 2)

Each message says what was found, what was expected, and the fix.
"""

from __future__ import annotations


class RagtraceError(Exception):
    """Base of everything ragtrace raises on purpose."""


class UsageError(RagtraceError, ValueError):
    """Wrong argument, option or configuration."""


class DefenseTypeError(UsageError, TypeError):
    """A defense's hook returned something else than its hook carries."""


class StoreError(RagtraceError):
    """The database cannot be read or written."""


class SchemaVersionError(StoreError):
    """The database was written by a newer ragtrace."""


class InputError(RagtraceError, ValueError):
    """A file, corpus or trace that cannot be used."""


class ModelError(RagtraceError):
    """Model weights are missing or are not the ones expected."""
