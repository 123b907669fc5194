"""The timeline of one message: its content, its state for each group, and the rows that were made from it.

The number of statements does not depend on the number of groups or on the size of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from .. import conf
from ..policy.message_query import DEAD, SCHEDULED, status_of
from ..policy.names import REPLIES_SUFFIX, scheduled_topic
from ..results import Inspected
from ..service import message_views
from ..service.message_views import LOG, Row
from ..store.connection import session
from ..store.queries import message_pages
from ..store.queries import one_message as store

RELATED = 100
"""The maximum number of dead letters, and of copies, that are returned."""
SCHEDULED_READ = 1_000


@dataclass(frozen=True)
class GroupState:
    """The state of a message for one registered group. ``message``: the details, without the payload.

    ``is_for``: the message is for this group, or for all. ``parked_retry``: None if there is none.
    """

    group: str
    is_paused: bool
    is_for: bool
    message: Inspected
    parked_retry: Inspected | None = None


@dataclass(frozen=True)
class Related:
    """A row that was made from the message, or from which it was made. ``group``: the row's group; '' for all."""

    offset: int
    topic: str
    group: str


@dataclass(frozen=True)
class MessageTimeline:
    """A message, its state for each group, and related rows.

    - ``message``: the content of the row. For a dead letter, it includes the state for the group that failed.
    - ``topic``: the topic that the message was published to. ``stored_in``, ``row_offset``, ``id``: of the row.
    - ``group_states``: the states for the topic's groups, up to a limit. ``more_groups``: there are other groups.
    - ``original``: the row from which a dead letter, a retry or a redriven message was made, if it still exists.
    - ``dead_letters``: the dead letters of the message. ``copies``: rows with its id that a retry, a redrive or a
      redelivery added to the log.
    """

    message: Inspected
    topic: str
    stored_in: str
    row_offset: int
    id: str
    partition: str
    created_at: int
    original_offset: int | None = None
    original: Related | None = None
    group_states: list[GroupState] = field(default_factory=list)
    more_groups: bool = False
    dead_letters: list[Related] = field(default_factory=list)
    copies: list[Related] = field(default_factory=list)


def message_timeline(
    using: str, offset: int, *, payload_limit: Callable[[str], int], groups: int
) -> MessageTimeline | None:
    """Return the timeline of the message at an offset; None if no row has this offset.

    ``payload_limit``: called with the row's topic, returns a number of bytes. Of a longer payload only the beginning is
    returned. ``groups``: the maximum number of groups whose state is returned.
    """
    with session.raises_not_migrated(using):
        origin = store.origin(using, offset)
        if origin is None:
            return None
        stored_in, created_at = origin
        found = message_views.read(using, [offset], payload_limit(stored_in)).get(offset)
        if found is None:
            return None
        row, body = found
        return _TimelineReader(using, row, stored_in, groups).read(body, created_at)


class _TimelineReader:
    def __init__(self, using: str, row: Row, stored_in: str, groups: int) -> None:
        self.using, self.row, self.stored_in, self.limit = using, row, stored_in, groups
        self.offset, self.partition = int(row["offset"]), str(row["partition"])
        self.location, self.topic = message_views.location_of(row, stored_in)

    def read(self, body: bytes, created_at: int) -> MessageTimeline:
        row, topic = self.row, self.topic
        message = message_views.decode(row, body, topic=topic, location=self.location)
        dead_letters = self._dead_letters()
        copies = self._copies(message)
        states, more = self._group_states(
            {dead_letter.group: dead_letter.offset for dead_letter in dead_letters},
            {copy.group for copy in copies if copy.offset > self.offset},
        )
        original_offset = self._original_offset()
        return MessageTimeline(
            message=message,
            topic=topic,
            stored_in=self.stored_in,
            row_offset=self.offset,
            id=row["id"],
            partition=self.partition,
            created_at=created_at,
            original_offset=original_offset,
            original=self._original(message, original_offset),
            group_states=states,
            more_groups=more,
            dead_letters=dead_letters,
            copies=copies,
        )

    def _dead_letters(self) -> list[Related]:
        """Return the dead letters that were made from this row.

        A dead letter can be consumed and dead-lettered again. The new one is then in another topic.
        """
        if self.location == SCHEDULED:
            return []
        dead = conf.dead_letter_topic(self.stored_in)
        found = store.dead_letters(self.using, dead, self.partition, self.offset, RELATED)
        return [Related(offset, dead, group) for offset, group in found]

    def _group_states(
        self, dead_letters: Mapping[str, int], copied_for: Set[str]
    ) -> tuple[list[GroupState], bool]:
        """Return the message's state for the groups of the row's topic, and whether there are more groups.

        A dead-letter topic can also have groups, because workers may consume dead letters.
        """
        if self.location == SCHEDULED or self.stored_in.endswith(REPLIES_SUFFIX):
            return [], False
        found = store.group_states(self.using, self.stored_in, self.partition, self.offset, self.limit + 1)
        parked = (
            self._parked_retries()
            if any(one["acked"] and one["group"] not in dead_letters for one in found)
            else {}
        )
        states = [self._group_state(one, dead_letters, copied_for, parked) for one in found[: self.limit]]
        return states, len(found) > self.limit

    def _group_state(
        self,
        state: Row,
        dead_letters: Mapping[str, int],
        copied_for: Set[str],
        parked: Mapping[str, Inspected],
    ) -> GroupState:
        group, target = state["group"], self.row["target"]
        start = int(state["start"])
        row = {
            **self.row,
            **state,
            "dead_letter": dead_letters.get(group),
            "was_redriven": group in copied_for,
            "is_early": self.offset <= start,
        }
        row["status"] = status_of(row, max(start, int(state["done_to"])))
        message = message_views.to_inspected(row, None, topic=self.topic, group=group, location=LOG)
        return GroupState(
            group=group,
            is_paused=bool(state["paused"]),
            is_for=target in ("", group),
            message=message,
            parked_retry=parked.get(group),
        )

    def _parked_retries(self) -> dict[str, Inspected]:
        """Return the parked retries of this message, by group."""
        topic = scheduled_topic(self.stored_in)
        offsets = store.parked_retries(self.using, topic, self.partition, self.offset, SCHEDULED_READ)
        found = {}
        for row in (message_pages.rows(self.using, offsets) if offsets else {}).values():
            found[row["target"]] = message_views.decode(row, None, topic=self.topic, location=SCHEDULED)
        return found

    def _original_offset(self) -> int | None:
        """Return the offset where the message was in the log before, if its row records it."""
        retry: Any = self.row["retry"].get("offset")
        if self.location == DEAD:
            return message_views.original_offset(self.row["id"])
        return retry if isinstance(retry, int) else None

    def _original(self, message: Inspected, offset: int | None) -> Related | None:
        """Return the row that this row was made from, if the log still holds it."""
        topic, found = self.topic, []
        if offset is not None:
            found = store.log_entry(self.using, topic, offset)
        elif self.row["original_id"] is not None:
            found = message_pages.by_id(self.using, topic, [self.partition], message.id)
        return next((Related(one, topic, target) for one, _, target in found), None)

    def _copies(self, message: Inspected) -> list[Related]:
        """Return the other rows of the partition that a retry, a redrive or a redelivery added with this id."""
        found = message_pages.by_original_id(self.using, self.topic, (), message.id, RELATED)
        return [
            Related(offset, self.topic, target)
            for offset, name, target in found
            if name == self.partition and offset != self.offset
        ]
