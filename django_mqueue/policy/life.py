"""What is told of one message's life."""

from __future__ import annotations

from dataclasses import dataclass, field

from .history import Inspected


@dataclass(frozen=True)
class Stand:
    """How the message stands with a group that is registered for its topic; ``view`` tells the rest, but no payload.

    ``is_early``: the group began behind it. ``is_kept``: what the group did with it is still there to be told.
    ``set_aside``: where it waits for a retry apart from the log: an offset among the scheduled messages.
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
    """A row that comes from the same message, or that this one comes from. ``group``: whose it is, '' for all."""

    offset: int
    topic: str
    group: str


@dataclass(frozen=True)
class Life:
    """``message`` as its row is: a dead letter tells of its group. ``topic`` is where it was published, ``stored_in``
    the topic of its row; ``id`` is the row's own.

    ``stands``: with each group of the topic, up to so many as were asked for; ``more_groups``: there are others.
    ``original``: of a dead letter, a retry or what was sent back, if it is still there. ``letters``: made of it.
    ``copies``: rows with its id that came back into the log.
    """

    message: Inspected
    topic: str
    stored_in: str
    id: str
    partition: str
    created_at: int
    original_offset: int | None = None
    original: Related | None = None
    stands: list[Stand] = field(default_factory=list)
    more_groups: bool = False
    letters: list[Related] = field(default_factory=list)
    copies: list[Related] = field(default_factory=list)
