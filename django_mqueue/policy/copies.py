"""What a copy of a message carries: the original's content, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .encoding import Encoded, described
from .requests import visible

HEADER = "mqueue-replay"
"""Holds the name of the replay; the names of the other headers that a copy has begin so, too."""

NAME_MAX = 100


@dataclass(frozen=True)
class Original:
    """The message that a copy is made of, as it is stored. ``published_at``: epoch milliseconds."""

    offset: int
    partition: str
    id: str
    kind: str
    encoding: str | None
    headers: Mapping[str, Any]
    body: bytes
    published_at: int


def copied(one: Original, topic: str, name: str) -> Encoded:
    """The content of a copy. What says where it comes from is left out where the headers have no room for it.

    It is no request any more, whatever the original was: nobody waits for an answer.
    """
    theirs = {
        key: value
        for key, value in visible(one.headers).items()
        if key != HEADER and not key.startswith(f"{HEADER}-")
    }
    return described(one.body, one.kind, theirs, one.encoding, origin(one, topic, name))


def origin(one: Original, topic: str, name: str) -> dict[str, str | int]:
    """The headers that tell where a copy comes from."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=one.published_at)
    return {
        HEADER: name,
        f"{HEADER}-topic": topic,
        f"{HEADER}-offset": one.offset,
        f"{HEADER}-id": one.id,
        f"{HEADER}-published-at": at.isoformat(timespec="milliseconds"),
    }


def headers_of(text: str | None) -> dict[str, Any]:
    """Headers as they are read, which may be no mapping where a message did not come from ``publish``."""
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def copy_id(name: str, offset: int) -> str:
    """Of the copy that a run of this name makes of the message at an offset."""
    return f"{name}@{offset}"
