"""Names of the groups that hold back deletion for replays and backfills.

To give up a run, a user unsubscribes the group with this name.
"""

from __future__ import annotations

from hashlib import blake2b

from ...policy import names

INTO = "-into-"


def of_backfill(group: str) -> str:
    """Return the group that holds back deletion while the past for ``group`` is read."""
    return _named("backfill", group)


def of_replay(name: str, topic: str, to: str) -> str:
    """Return the group that holds back deletion while ``topic`` is replayed into ``to``.

    The name is different for each ``to``. So two replays with the same name, from one topic into two topics, may run at
    once.
    """
    told = name if to == topic else f"{name}{INTO}{to}"
    if told.find(INTO) != (-1 if to == topic else told.rfind(INTO)):
        told = _digest(f"{name}\0{to}")  # The end of the name would be ambiguous.
    return _named("replay", told)


def _named(kind: str, name: str) -> str:
    found = f"{kind}-{name}"
    return found if len(found) <= names.GROUP_MAX else f"{kind}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
