"""What the receiver says, in the encoding in which it was asked: the messages of OTLP, google.rpc.Status for errors."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from starlette.responses import Response

JSON, PROTOBUF = "application/json", "application/x-protobuf"
# google.rpc.Code, by the HTTP status that goes with it
_CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 8, 415: 3, 429: 8, 500: 13, 503: 14}


class Refused(Exception):  # noqa: N818
    """A request that is not taken. The message is the sender's to read: it never quotes what was sent.

    :param retry_after: seconds after which the same request may be sent again.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)


class Left(NamedTuple):
    """Spans that were left out of a request, and why the first of them was."""

    spans: int = 0
    reason: str = ""


def taken(media: str, left: Left) -> Response:
    """The answer to a request that is stored, apart from what was left out."""
    answer = ExportTraceServiceResponse()
    if left.spans:
        answer.partial_success.CopyFrom(ExportTracePartialSuccess(rejected_spans=left.spans, error_message=left.reason))
    return _response(answer, media, 200, {})


def refused(media: str, why: Refused) -> Response:
    """The answer to a request of which nothing is stored."""
    return _response(Status(code=_CODES[why.status], message=why.message), media, why.status, why.headers)


def _response(message: Any, media: str, status: int, headers: dict[str, str]) -> Response:
    if media == JSON:
        content = json_format.MessageToJson(message, indent=None).encode()
    else:
        content = message.SerializeToString()
    return Response(content, status, {"Content-Type": media, **headers})
