"""Encoding and decoding of payloads and headers for the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder

from .names import KIND_MAX

JSON, BYTES = "json", "bytes"
HEADERS_MAX_BYTES = 65_536
PAYLOAD_MAX_DEPTH = 200
"""Maximum nesting of lists and mappings in a payload. Beyond some depth, Python's decoder in the worker fails."""
HEADERS_MAX_DEPTH = 20
"""Maximum nesting of lists and mappings in headers. A JSON column takes 32 levels in MariaDB, 100 in MySQL."""

_ENCODER = DjangoJSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Encoded(NamedTuple):
    """The content of a message as stored. ``metadata``: JSON with the kind, the headers and the payload's encoding."""

    body: bytes
    metadata: str


class JsonText(str):
    """A payload that is JSON text already, and is stored unchanged."""

    __slots__ = ()


def _dump(argument: str, value: Any) -> bytes:
    """Return JSON. NaN and infinity raise ``ValueError``, because the servers would refuse them."""
    try:
        return _ENCODER.encode(value).encode()
    except (TypeError, RecursionError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{argument} cannot be encoded as JSON: {error}") from error


def encode(
    payload: Any, kind: Any, headers: Any, max_bytes: int, carried: Mapping[str, str] | None = None
) -> Encoded:
    """Encode the content of one message.

    ``max_bytes``: the limit of the encoded payload. ``carried``: headers of the queue itself; they are left out if the
    size limit has no room for them. Raises ``TypeError`` or ``ValueError`` that names the invalid argument.
    """
    if not isinstance(kind, str):
        raise TypeError(f"kind must be a str, not {type(kind).__name__}")
    if len(kind) > KIND_MAX:
        raise ValueError(f"kind may have at most {KIND_MAX} characters, not {len(kind)}")
    if headers is None:
        headers = {}
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping, not {type(headers).__name__}")
    for name in headers:
        if not isinstance(name, str):
            raise TypeError(f"headers must have str keys, not {name!r}")
    _check_headers(headers, 1)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        body, encoding = bytes(payload), BYTES
    else:
        encoding = JSON
        if isinstance(payload, JsonText):
            body, payload = payload.encode(), _parsed(payload)
        else:
            body = _dump("payload", payload)
        if body.count(b"[") + body.count(b"{") > PAYLOAD_MAX_DEPTH and _is_deeper(payload, PAYLOAD_MAX_DEPTH):
            raise ValueError(f"payload may be nested at most {PAYLOAD_MAX_DEPTH} levels deep")
    if len(body) > max_bytes:
        raise ValueError(
            f"payload is {len(body)} bytes encoded, over MAX_PAYLOAD_BYTES ({max_bytes}): "
            "store it elsewhere and publish a reference, or raise the limit"
        )
    metadata = _metadata(kind, headers, {**(carried or {}), **headers}, encoding)
    if len(metadata) > HEADERS_MAX_BYTES:
        raise ValueError(f"headers are {len(metadata)} bytes encoded, over the limit of {HEADERS_MAX_BYTES}")
    return Encoded(body, metadata.decode())


def encode_stored(
    body: bytes, kind: str, headers: Mapping[str, Any], encoding: str | None, carried: Mapping[str, Any]
) -> Encoded:
    """Return the content for a stored body. ``carried``: more headers, if the size limit has room for them."""
    return Encoded(body, _metadata(kind, headers, {**headers, **carried}, encoding).decode())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"payload is not JSON: {error}") from error


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _metadata(kind: str, headers: Mapping[str, Any], more: Mapping[str, Any], encoding: str | None) -> bytes:
    """Return the metadata with the headers ``more``, or with ``headers`` if ``more`` exceeds the size limit."""
    if not more:
        return _without_headers(kind, encoding)
    found = b""
    for given in (more, headers):
        found = _dump("kind and headers", {"kind": kind, "headers": dict(given), "encoding": encoding})
        if len(found) <= HEADERS_MAX_BYTES or more == headers:
            break
    return found


@lru_cache
def _without_headers(kind: str, encoding: str | None) -> bytes:
    return _dump("kind and headers", {"kind": kind, "headers": {}, "encoding": encoding})


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and mappings are nested deeper. Not recursive, because the nesting may be very deep."""
    layer = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for item in layer:
            if isinstance(item, Mapping):
                inner += item.values()
            elif isinstance(item, (list, tuple)):
                inner += item
        layer = inner
        if not layer:
            return False
    return any(isinstance(item, (Mapping, list, tuple)) for item in layer)


def _check_headers(value: Any, level: int) -> None:
    """Raise ``ValueError`` for headers that a server's JSON column would refuse or change."""
    if isinstance(value, (Mapping, list, tuple)):
        if level > HEADERS_MAX_DEPTH:
            raise ValueError(f"headers may be nested at most {HEADERS_MAX_DEPTH} levels deep")
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_headers(item, level + 1)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise ValueError(
            f"headers may hold whole numbers of at most 64 bits: from {-(1 << 63)} to {(1 << 64) - 1}"
        )


def decode(body: bytes, encoding: str) -> Any:
    """Return the payload as published, with JSON's types: a tuple is a list.

    Raises ``ValueError`` for an unknown encoding, or a body that is not valid in its encoding.
    """
    if encoding == BYTES:
        return bytes(body)
    if encoding == JSON:
        return json.loads(body)
    raise ValueError(f"unknown encoding {encoding!r}")
