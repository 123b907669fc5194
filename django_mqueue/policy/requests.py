"""The reply box, in which a caller of ``request`` waits for the reply, and the request's header that names it.

Handlers, pages and signals do not see the header. A box accepts only the reply to its request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REPLY_TO = "mqueue-reply-to"
"""The header that makes a message a request. Only ``request`` stores it."""

PARTITION = " replies"
"""The partition of all boxes. No key and no other partition has this name."""

BOX_OFFSET_MAX = 10**18 - 1
"""The highest offset of a box that its name can hold."""

_BOX = re.compile(r"([0-9]{1,18}):([0-9a-f-]{36})")


@dataclass(frozen=True)
class Box:
    """A row that waits for a reply: its offset and id, and the request's topic and id."""

    offset: int
    id: str
    topic: str
    request_id: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.id}"


def box_in(metadata: str, topic: str, request_id: str) -> Box | None:
    """Return the box that a message's stored metadata names, as ``box_of`` does."""
    found = json.loads(metadata)
    return box_of(found.get("headers"), topic, request_id) if isinstance(found, Mapping) else None


def box_of(headers: Any, topic: str, request_id: str) -> Box | None:
    """Return the box that a message's headers name; None if it is not a request."""
    named = headers.get(REPLY_TO) if isinstance(headers, Mapping) else None
    found = _BOX.fullmatch(named) if isinstance(named, str) else None
    return Box(int(found[1]), found[2], topic, request_id) if found else None


def visible(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers without the header that names a box."""
    return {name: value for name, value in headers.items() if name != REPLY_TO}


def check_headers(headers: Any) -> None:
    """Raise ``ValueError`` for headers that name a box."""
    if isinstance(headers, Mapping) and REPLY_TO in headers:
        raise ValueError(
            f"headers must not hold {REPLY_TO!r}: only request() sets it. Leave it out, or use request() to get a reply"
        )
