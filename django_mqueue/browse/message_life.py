"""The history of one message, for its page in the admin."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..policy.message_query import Inspected


@dataclass(frozen=True)
class GroupView:
    """The state of a message for one registered group. ``view``: the details, without the payload.

    ``is_for``: the message is for this group, or for all. ``is_early``: the group began after the message, and has no
    state for it. ``is_kept``: the group's state for the message still exists. ``set_aside``: the parked retry, if there
    is one.
    """

    group: str
    is_paused: bool
    is_for: bool
    is_early: bool
    is_kept: bool
    view: Inspected
    set_aside: Inspected | None = None


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
    - ``topic``: the topic that the message was published to. ``stored_in``: the topic of the row. ``id``: the row's id.
    - ``stands``: the states for the topic's groups, up to a limit. ``more_groups``: there are other groups.
    - ``original``: the row from which a dead letter, a retry or a redriven message was made, if it still exists.
    - ``letters``: the dead letters of the message. ``copies``: rows with its id that a retry or a redrive added to the
      log.
    """

    message: Inspected
    topic: str
    stored_in: str
    id: str
    partition: str
    created_at: int
    original_offset: int | None = None
    original: Related | None = None
    stands: list[GroupView] = field(default_factory=list)
    more_groups: bool = False
    letters: list[Related] = field(default_factory=list)
    copies: list[Related] = field(default_factory=list)
