"""One line at start-up: tracer provider, spool exporter, every installed framework."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import wrapt
from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.trace import TracerProvider

from ragtrace.defense import Defense, checked
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a
from ragtrace.record import handles, planted
from ragtrace.record.capture import Also, Capture, Mode, given_key
from ragtrace.record.queueing import SpoolProcessor
from ragtrace.record.spans import Recorder
from ragtrace.record.spool import LIMIT, SpoolExporter
from ragtrace.types import Canary

_log = logging.getLogger("ragtrace")
LEAST_LIMIT = 2**20
_FRAMEWORKS = {"ragtrace_langchain": "langchain_core", "ragtrace_llama_index": "llama_index.core"}


class Tracing:
    """What :func:`setup` has installed. Where ``OTEL_SDK_DISABLED`` is set, that is the defenses alone."""

    def __init__(
        self, database: Path, policy: Capture, defenses: tuple[Defense, ...], spool_limit: int | None = LIMIT
    ) -> None:
        self.database = database
        self.capture = policy.mode
        self._policy = policy
        self._over = False
        self.instrumentors: list[Any] = []
        self._processor: SpoolProcessor | None = None
        if _disabled():
            self.provider = TracerProvider(shutdown_on_exit=False)  # its tracers make no spans
        else:
            if not policy.keeps_all:
                policy.key = _digest_key(database)
            self.provider = _provider()
            service = str(self.provider.resource.attributes.get("service.name", ""))
            self._processor = SpoolProcessor(SpoolExporter(database, policy.mode, spool_limit), service)
            self.provider.add_span_processor(self._processor)
            atexit.register(self._processor.force_flush)  # the app's own provider may have been told not to
        self._recorder = Recorder(self.provider.get_tracer(a.SCOPE), "none", policy, defenses)
        handles.begin(self._recorder)

    def instrument(self, entry: EntryPoint, defenses: tuple[Defense, ...], framework: Any) -> None:
        """Puts the wraps on a framework that has just been imported. Never raises."""
        if self._over:
            return
        try:
            instrumentor = entry.load()()
            if instrumentor.is_instrumented_by_opentelemetry:
                _log.warning("%s is on already; what it records goes where that was set up to go", entry.name)
                return
            instrumentor.instrument(tracer_provider=self.provider, capture=self._policy, defenses=defenses)
            self.instrumentors.append(instrumentor)
        except Exception:
            _log.warning("ragtrace could not instrument %s; the app is not affected", entry.name, exc_info=True)

    def look_for(self, canaries: Sequence[Canary]) -> list[dict[str, str]]:
        """What a run writes of the canaries that it has planted. Where texts are not kept, they are looked for from now
        on, and named by their digest as well."""
        if not self._policy.keeps_all:
            self._policy.look_for(planted.Planted(c.text, c.family) for c in canaries)
        rows = [asdict(canary) for canary in canaries]
        if not self._policy.keeps_all and self._policy.mode != "none":
            rows = [row | {"digest": str(self._policy.digest(row["text"]))} for row in rows]
        return rows

    def flush(self) -> None:
        """Writes every ended span to the spool now."""
        if self._processor is not None:
            self._processor.force_flush()

    def shutdown(self) -> None:
        """Writes what is left, takes the wraps off the frameworks, and stops recording."""
        self._over = True
        for instrumentor in self.instrumentors:
            instrumentor.uninstrument()
        handles.finish(self._recorder)
        if self._processor is not None:
            self._processor.shutdown()
            atexit.unregister(self._processor.force_flush)
        _installed.pop(self.database, None)


_installed: dict[Path, Tracing] = {}


def setup(
    database: str | Path = "traces.duckdb",
    *,
    capture: Mode = "digest",
    defenses: tuple[Defense, ...] | list[Defense] = (),
    spool_limit: int | None = LIMIT,
    also: Also | None = None,
    canaries: Iterable[str | Canary] | str | Path | None = None,
    statistics: bool = True,
) -> Tracing:
    """Starts tracing into the spool of ``database`` and instruments every framework, when the app imports it.

    Installs the global tracer provider, or joins the one that is there, so that the app's own spans are stored
    too. A normal exit flushes. ``defenses`` act on every pipeline of the process. Called again with the same
    database it changes nothing. The database itself is never opened by this process.

    :param capture: what may be stored of texts: ``full``, ``masked``, ``digest`` (default) or ``none``.
    :param spool_limit: bytes that segments may take on disk until somebody merges them; beyond, the oldest go, and are
        counted in the view ``losses``. ``None``: no limit.
    :param also: ``"openinference"`` writes OpenInference's span attributes beside ours, for Phoenix and its like; the
        capture mode holds for them too. Default: what ``RAGTRACE_ALSO`` says, else nothing.
    :param canaries: looked for in every text (the view ``canary_hits``): strings, or the path of a file that
        ``ragtrace canary`` wrote. Default: the file that ``RAGTRACE_CANARIES`` names. Not in mode ``none``.
    :param statistics: whether entities, and what answers took over from documents, are computed here in the modes
        ``masked`` and ``digest``, where nobody can do so later.
    :raises UsageError: an unknown ``capture``, or another one than this process already records with;
        something among ``defenses`` that is no :class:`Defense`; a limit below a megabyte; an unknown ``also``;
        canaries that cannot be read or are too short.
    """
    path = Path(database).expanduser().absolute()
    if path in _installed:
        return _installed[path]
    policy = Capture(capture, also=also, statistics=statistics and not _disabled(), canaries=planted.canaries(canaries))
    for other in _installed.values():
        if other.capture != policy.mode:
            raise UsageError(
                f"capture={capture!r} for {path}, but this process already records with capture={other.capture!r} for "
                f"{other.database}, and each text is taken once; use the same mode, or shutdown() that one first"
            )
    if spool_limit is not None and (type(spool_limit) is not int or spool_limit < LEAST_LIMIT):
        raise UsageError(
            f"spool_limit is {spool_limit!r}; expected bytes, at least {LEAST_LIMIT}, or None for no limit"
        )
    standing = checked(defenses, "setup(defenses=…)")
    tracing = Tracing(path, policy, standing, spool_limit)
    _installed[path] = tracing
    for entry in entry_points(group="opentelemetry_instrumentor"):
        if (framework := _FRAMEWORKS.get(entry.name)) is not None:
            wrapt.register_post_import_hook(partial(tracing.instrument, entry, standing), framework)
    return tracing


def _disabled() -> bool:
    return os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true"  # as the SDK's own provider reads it


def _provider() -> TracerProvider:
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        return provider
    made = TracerProvider()
    trace.set_tracer_provider(made)
    return made


def _digest_key(database: Path) -> bytes:
    """The key of this store's digests: from ``RAGTRACE_DIGEST_KEY``, or made once beside the store (0600)."""
    if given := given_key():
        return given
    file = database.with_name(database.name + ".key")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=file.parent) as made:  # 0600
                made.write(secrets.token_bytes(32))
                made.flush()
                with suppress(FileExistsError):  # of several workers that start together, one makes the key, whole
                    os.link(made.name, file)
        return file.read_bytes()
    except OSError:
        _log.warning("ragtrace cannot keep a digest key at %s; digests differ between processes", file)
        return secrets.token_bytes(32)
