"""The groups of a topic, and their positions."""

from __future__ import annotations

from ... import conf
from ...policy.durations import moment_or_none
from ...results import Standing
from ...store import heartbeats, offsets
from ...store.connection import session
from ...store.offsets import Registration
from ...store.queries import group_rows
from .backlog import oldest_open


def group_states(using: str, topic: str, partitions: int) -> list[Standing]:
    """Return the state of all registered groups by name. Read at most ``partitions`` partitions for each group."""
    with session.raises_not_migrated(using):
        return [
            _group_state(using, topic, group, registration, partitions)
            for group, registration in offsets.registrations(using, topic).items()
        ]


def _group_state(using: str, topic: str, group: str, registration: Registration, partitions: int) -> Standing:
    alive = heartbeats.members(using, group, topic, conf.lease_ms(topic))
    oldest, is_partial = oldest_open(using, topic, group, registration.start, partitions)
    at = group_rows.published(using, [oldest]).get(oldest) if oldest is not None else None
    return Standing(
        group, registration.start, registration.paused, tuple(alive), oldest,
        moment_or_none(at), is_partial,
    )  # fmt: skip
