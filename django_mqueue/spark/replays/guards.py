"""What the groups are called that hold back deletion: whoever gives up a run unsubscribes its group by that name."""

from __future__ import annotations

from hashlib import blake2b

from ...policy import names

INTO = "-into-"


def of_backfill(group: str) -> str:
    """While the past of ``group`` is read."""
    return _named("backfill", group)


def of_replay(name: str, topic: str, to: str) -> str:
    """While ``topic`` is replayed into ``to``. Each topic that is replayed into has names of its own, so two replays of
    one name from one topic may be under way."""
    told = name if to == topic else f"{name}{INTO}{to}"
    if told.find(INTO) != (-1 if to == topic else told.rfind(INTO)):
        told = _digest(f"{name}\0{to}")  # Where the name ends could not be told.
    return _named("replay", told)


def _named(kind: str, name: str) -> str:
    found = f"{kind}-{name}"
    return found if len(found) <= names.GROUP_MAX else f"{kind}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
