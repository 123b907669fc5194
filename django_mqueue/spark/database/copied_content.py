"""The content of a message's copy: the original's content, and headers that name the original."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...policy.durations import moment
from ...policy.encoding import Encoded, encode_stored
from ...policy.requests import visible

HEADER = "mqueue-replay"
"""The header with the name of the replay. The other headers that a copy adds begin with this name and a hyphen."""

NAME_MAX = 100


@dataclass(frozen=True)
class Original:
    """The stored message of which a copy is made. ``published_at``: epoch milliseconds."""

    offset: int
    partition: str
    id: str
    kind: str
    encoding: str | None
    headers: Mapping[str, Any]
    body: bytes
    published_at: int


def copied(one: Original, topic: str, name: str) -> Encoded:
    """Return the content of a copy. The headers about the original are left out if the size limit has no room for them.

    The copy of a request is not a request, because no caller waits for its reply.
    """
    headers = {
        key: value
        for key, value in visible(one.headers).items()
        if key != HEADER and not key.startswith(f"{HEADER}-")
    }
    origin = {
        HEADER: name,
        f"{HEADER}-topic": topic,
        f"{HEADER}-offset": one.offset,
        f"{HEADER}-id": one.id,
        f"{HEADER}-published-at": moment(one.published_at).isoformat(timespec="milliseconds"),
    }
    return encode_stored(one.body, one.kind, headers, one.encoding, origin)


def headers_of(text: str | None) -> dict[str, Any]:
    """Return headers from JSON; empty if the JSON is no mapping, as in a row that ``publish`` did not store."""
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def copy_id(name: str, offset: int) -> str:
    """Return the id of the copy that the run ``name`` makes of the message at an offset."""
    return f"{name}@{offset}"
