"""What the model speaks of: messages, workers, deliveries, and where a group is with a message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Breach(AssertionError):
    """A promise was broken."""


class Status(Enum):
    NEW = "not delivered yet"
    FLYING = "delivered and not answered"
    WAITING = "put back"
    DONE = "acked"
    DEAD = "dead-lettered"


ENDED = (Status.DONE, Status.DEAD)


class Expected(Enum):
    """What an answer must come to.

    ``EITHER``: its lease or its visibility ran out; whether others have the partition now cannot be seen from outside.
    """

    TRUE = "True"
    STALE = "StaleDelivery"
    EITHER = "True or StaleDelivery"


@dataclass(frozen=True)
class Stored:
    """One message of the log. ``late``: when it committed, a higher offset of the topic could be seen already.

    ``group``: the only one that it is for, '' for all. ``returned``: it was redriven; its row has an id of its own.
    """

    offset: int
    partition: str
    id: str
    group: str = ""
    returned: bool = False
    late: bool = False


@dataclass(eq=False)
class Worker:
    """One life of one subscriber. ``expired``: its leases ran out and it has not renewed since."""

    group: str
    name: str
    strict: bool = False
    batch_size: int = 100
    gone: bool = False
    expired: bool = False


@dataclass(eq=False)
class Handout:
    """One delivery. ``risky``: its lease ran out; ``ran_out``: its visibility did; ``void``: it counts no more."""

    worker: Worker
    offset: int
    attempt: int
    alone: bool
    risky: bool = False
    ran_out: bool = False
    void: bool = False
    answer: str = ""

    @property
    def firm(self) -> bool:
        """Nobody else may have the message, and its worker knows that it has it."""
        return not (self.risky or self.ran_out or self.void or self.answer)


@dataclass
class Progress:
    """Where one group is with one message. ``optional``: it was there before a group that wants the latest only.

    ``doubtful``: it may have been buried without a new letter, for there was one, which is gone now.
    """

    optional: bool = False
    status: Status = Status.NEW
    counted: int = 0
    failures: int = 0
    due: bool = True
    doubtful: bool = False
    handout: Handout | None = None
