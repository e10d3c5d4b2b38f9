"""The trace viewer: a web page for one person on this machine, made on the server from a store that is only read."""

from ragtrace.ui.server import serve

__all__ = ["serve"]
