"""Reading a request's body: within limits, decompressed while it arrives, so that a bomb never unfolds."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

from ragtrace.collect.answers import Refused

LARGEST_SENT = 16 * 2**20
LARGEST = 32 * 2**20
"""Bytes of a body, as it is sent and decompressed."""
SECONDS = 30.0
"""That a body may take to arrive."""
_DISCARDED = 128 * 2**20  # read of a body that is too large, so that its sender gets to read why
_WINDOW = {"gzip": 31, "deflate": 15}  # as zlib wants it told


async def read(chunks: AsyncIterator[bytes], encoding: str, length: str | None) -> bytes:
    """The whole body.

    :raises Refused: too large, too slow, cut off, or an encoding that we do not read.
    """
    try:
        async with asyncio.timeout(SECONDS):
            try:
                if encoding != "identity" and encoding not in _WINDOW:
                    raise Refused(
                        415,
                        "Content-Encoding is not known; expected gzip, deflate or none",
                        Accept_Encoding="gzip, deflate",
                    )
                limit = LARGEST if encoding == "identity" else LARGEST_SENT
                if length is not None and length.isdecimal() and int(length[:20]) > limit:
                    raise _too_large(f"Content-Length above {limit}")
                return await (_plain(chunks) if encoding == "identity" else _inflate(chunks, _WINDOW[encoding]))
            except Refused:
                await _discard(chunks)
                raise
    except TimeoutError as error:
        raise Refused(408, f"the body took more than {SECONDS:.0f} s to arrive; send it again", 1) from error


async def _plain(chunks: AsyncIterator[bytes]) -> bytes:
    found = bytearray()
    async for chunk in chunks:
        found += chunk
        if len(found) > LARGEST:
            raise _too_large(f"more than {LARGEST} bytes")
    return bytes(found)


async def _inflate(chunks: AsyncIterator[bytes], window: int) -> bytes:
    found, sent = bytearray(), 0
    engine = zlib.decompressobj(window)
    try:
        async for chunk in chunks:
            sent += len(chunk)
            if sent > LARGEST_SENT:
                raise _too_large(f"more than {LARGEST_SENT} compressed bytes")
            while chunk:
                if engine.eof:  # several gzip files, one after the other, are one
                    engine = zlib.decompressobj(window)
                found += engine.decompress(chunk, LARGEST + 1 - len(found))
                if len(found) > LARGEST:
                    raise _too_large(f"more than {LARGEST} bytes when decompressed")
                chunk = engine.unused_data if engine.eof else engine.unconsumed_tail
    except zlib.error as error:
        raise Refused(400, "the body is not compressed as Content-Encoding says, or damaged") from error
    if sent and not engine.eof:
        raise Refused(400, "the compressed body is cut off; send it again, whole")
    return bytes(found)


async def _discard(chunks: AsyncIterator[bytes]) -> None:
    rest = _DISCARDED
    async for chunk in chunks:
        rest -= len(chunk)
        if rest < 0:
            return


def _too_large(what: str) -> Refused:
    return Refused(413, f"the body has {what}; send smaller batches (max_export_batch_size)")
