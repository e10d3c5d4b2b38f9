"""Compressed files: unpacked while they stay within what a trace can be."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ragtrace.errors import InputError

LARGEST = 2**30  # bytes of a compressed file's content, and of what comes through a pipe
_SUSPECT, _RATIO = 2**26, 200  # beyond so many bytes: no trace shrinks so well, only a bomb does
_GZIP, _ZSTD, _LZ4, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ\x00"
_ZIP = (b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"Rar!")
_PIECE = 2**20


def expanded(data: bytes) -> bytes:
    """``data`` without its compression: gzip, zstd, bzip2, xz or lz4.

    :raises InputError: cut off, or far larger than any trace would be.
    """
    if data.startswith(_GZIP):
        return _gunzip(data)
    if data.startswith(_ZSTD):
        return _by_arrow(data, "zstd")
    if data.startswith(_LZ4):
        return _by_arrow(data, "lz4")
    if data.startswith(_BZIP2):
        return _in_streams(data, "bzip2", _BZIP2, bz2.BZ2Decompressor)
    if data.startswith(_XZ):
        return _in_streams(data, "xz", _XZ, lzma.LZMADecompressor)
    if data.startswith(_ZIP):
        raise InputError("an archive; expected the files that are in it: unpack it, and give its folder")
    return data


def messages(data: bytes) -> bytes:
    """The collector's file exporter compresses each message by itself, a length of four bytes before it."""
    if data[4:8] != _ZSTD:
        return data
    out, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        if place + 4 + size > len(data):
            raise InputError("messages with a length before each, the last one cut off; export it again, whole")
        piece = expanded(data[place + 4 : place + 4 + size])
        out.append(len(piece).to_bytes(4, "big") + piece)
        place += 4 + size
    return b"".join(out)


def _gunzip(data: bytes) -> bytes:
    out: list[bytes] = []
    size, rest = 0, data
    try:
        while rest[:2] == _GZIP:  # the collector appends members
            engine = zlib.decompressobj(31)
            while not engine.eof:
                piece = engine.decompress(rest, _PIECE)
                rest = engine.unconsumed_tail
                if not piece and not rest and not engine.eof:
                    raise InputError("gzip that is cut off; export it again, whole")
                size = _bounded(size + len(piece), len(data))
                out.append(piece)
            rest = engine.unused_data
    except zlib.error as error:
        raise InputError(f"gzip that cannot be read ({error}); export it again, whole") from error
    return b"".join(out)


def _in_streams(data: bytes, name: str, start: bytes, engines: Callable[[], Any]) -> bytes:
    out: list[bytes] = []
    size, rest = 0, data
    try:
        while rest.startswith(start):  # as many as were appended
            engine = engines()
            while not engine.eof:
                piece = engine.decompress(rest, _PIECE)
                rest = b""
                if not piece and engine.needs_input and not engine.eof:
                    raise InputError(f"{name} that is cut off; export it again, whole")
                size = _bounded(size + len(piece), len(data))
                out.append(piece)
            rest = engine.unused_data
    except (OSError, lzma.LZMAError) as error:
        raise InputError(f"{name} that cannot be read ({error}); export it again, whole") from error
    return b"".join(out)


def _by_arrow(data: bytes, name: str) -> bytes:
    out: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            while piece := stream.read(_PIECE):
                size = _bounded(size + len(piece), len(data))
                out.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{name} that cannot be read ({error}); export it again, whole") from error
    return b"".join(out)


def _bounded(size: int, packed: int) -> int:
    if size > LARGEST or (size > _SUSPECT and size > _RATIO * packed):
        raise InputError(f"{packed} bytes that decompress to more than {size}; expected at most {LARGEST}, and traces")
    return size
