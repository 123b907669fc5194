"""Facts about a dead letter that its row does not hold: its original, its redrives, other dead letters of its id."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..policy.message_query import DEAD
from ..results import FailedAttempt, Inspected
from ..service import message_views
from ..service.redrive import DeadLetterRow
from ..store import dead_letters
from ..store.connection import session
from ..store.queries import dead_letter_summaries, message_pages, one_message
from .dead_letters import registered
from .sources import IDS


@dataclass(frozen=True)
class DeadLetterDetails:
    """The facts about a dead letter.

    ``original``: the offset of the original message; None if the log no longer holds it. ``returns``: (offset,
    group) of redriven messages of its partition with its id. ``siblings``: (offset, group) of other dead letters of its
    partition with its id. Both lists hold the newest that are still in the log. ``is_registered``: whether its group is
    registered.
    """

    original: int | None
    returns: list[tuple[int, str]]
    siblings: list[tuple[int, str]]
    is_registered: bool


def dead_letter_details(using: str, dead_letter: DeadLetterRow, most: int) -> DeadLetterDetails:
    """Return the facts about a dead letter, with at most ``most`` returns and siblings each."""
    row = dead_letter.row
    topic, id, group = row["original_topic"] or "", row["original_id"], row["failed_group"]
    with session.raises_not_migrated(using):
        original = _original(using, dead_letter)
        copies = message_pages.by_original_id(using, topic, (), id, IDS) if topic else []
        rows = message_pages.rows(using, [offset for offset, name, _ in copies if name == row["partition"]])
        for copy in rows.values():
            message_views.decode_row(copy, message_views.LOG)
        groups = sorted(dead_letters.groups(using, dead_letter.topic))
        others = message_pages.by_original_id(using, dead_letter.topic, groups, id, IDS) if groups else []
        siblings = [offset for offset, name, _ in others if name == row["partition"]]
        summaries = dead_letter_summaries.at_offsets(
            using, dead_letter.topic, siblings[-most - 1 :], sizes=False
        )
        return DeadLetterDetails(
            original,
            [(offset, copy["target"]) for offset, copy in sorted(rows.items()) if not copy["retry"]][-most:],
            [(one.offset, one.group) for one in summaries if one.offset != int(row["offset"])][-most:],
            bool(registered(using, topic, {group})),
        )


def _original(using: str, dead_letter: DeadLetterRow) -> int | None:
    """Return the offset of the original message; None if the log no longer holds it."""
    offset, topic = message_views.original_offset(dead_letter.row["id"]), dead_letter.row["original_topic"]
    return offset if offset and topic and one_message.log_entry(using, topic, offset) else None


def as_message(dead_letter: DeadLetterRow) -> Inspected:
    """Return the dead letter as a message of its original topic, for masks.

    The last of its ``errors`` is the final error.
    """
    row = dead_letter.row
    more = {"status": DEAD, "size": len(row["payload"]), "available_at": row["published_at"], "target": ""}
    decoded = {**row, "metadata": dead_letter.metadata, "message_failures": row["failure_count"], **more}
    topic = row["original_topic"] or ""
    found = message_views.to_inspected(decoded, bytes(row["payload"]), topic=topic, group=None, location=DEAD)
    errors, last = found.errors, row["last_error"] or ""
    if not errors or errors[-1].error != last:
        errors = (*errors, FailedAttempt(found.done_at or found.published_at, found.failures, "", last))
    return replace(found, offset=int(row["offset"]), errors=errors)
