"""Where the answer to a request goes: the box that its requester has opened, as the request's headers name it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REPLY_TO = "mqueue-reply-to"
"""The header that makes a message a request."""

PARTITION = " replies"
"""Of all boxes: no key can be named so, and no keyless message's partition is."""

_BOX = re.compile(r"([0-9]{1,18}):([0-9a-f-]{36})")


@dataclass(frozen=True)
class Box:
    """A row that waits for an answer: where it is in the table, and the id that only the request knows."""

    offset: int
    id: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.id}"


def box_in(metadata: str) -> Box | None:
    """``box_of`` for a message's metadata as the log stores it, whatever that is."""
    found = json.loads(metadata)
    headers = found.get("headers") if isinstance(found, Mapping) else None
    return box_of(headers) if isinstance(headers, Mapping) else None


def box_of(headers: Mapping[str, Any]) -> Box | None:
    """The box that a message's headers name; None for a message that is no request."""
    named = headers.get(REPLY_TO)
    found = _BOX.fullmatch(named) if isinstance(named, str) else None
    return Box(int(found[1]), found[2]) if found else None
