"""The objects of the model: messages, workers, deliveries, and the progress of a group with a message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Breach(AssertionError):
    """The queue broke a promise."""


class Status(Enum):
    NEW = "not delivered yet"
    FLYING = "delivered and not answered"
    WAITING = "put back"
    DONE = "acked"
    DEAD = "dead-lettered"


ENDED = (Status.DONE, Status.DEAD)


class Expected(Enum):
    """The result that an answer must have.

    ``EITHER``: the lease or the visibility timeout expired. A test cannot see whether others have the partition now.
    """

    TRUE = "True"
    STALE = "StaleDelivery"
    EITHER = "True or StaleDelivery"


@dataclass(frozen=True)
class Stored:
    """One message of the log. ``late``: a higher offset of the topic was already visible when it committed.

    ``group``: the only group that gets it, or '' for all. ``returned``: it was redriven, and its row has a new id.
    """

    offset: int
    partition: str
    id: str
    group: str = ""
    returned: bool = False
    late: bool = False


@dataclass(eq=False)
class Worker:
    """One incarnation of a subscriber. ``expired``: its leases expired, and it has not renewed them since."""

    group: str
    name: str
    strict: bool = False
    batch_size: int = 100
    gone: bool = False
    expired: bool = False


@dataclass(eq=False)
class Handout:
    """One delivery. ``risky``: its lease expired. ``ran_out``: its visibility timeout expired.

    ``void``: it no longer counts.
    """

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
        """Only its worker may have the message, and the worker knows it."""
        return not (self.risky or self.ran_out or self.void or self.answer)


@dataclass
class Progress:
    """The progress of one group with one message.

    ``optional``: the group starts at the latest, and the message was there before. ``doubtful``: the message may be
    dead without a new letter, because an older letter existed and is now gone.
    """

    optional: bool = False
    status: Status = Status.NEW
    counted: int = 0
    failures: int = 0
    due: bool = True
    doubtful: bool = False
    handout: Handout | None = None
