"""The plan of a run: topics, groups, the queue's settings, and the behaviours that messages request."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proof.history import Registered, Writer

ORDERS, LEDGER, JOBS = "orders", "ledger", "tasks.default"
KEYS = [f"customer-{n}" for n in range(40)]
LEDGER_KEYS = 6
"""The number of strict keys of each publisher. A strict key has one publisher, so its order is known."""

VISIBILITY = 2.0
MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Group:
    topic: str
    name: str
    strict: bool = False
    atomic: bool = False

    def registered(self, at: int) -> Registered:
        return Registered(at, self.topic, self.name, self.strict, MAX_ATTEMPTS, self.atomic)


BILLING, HAND, BOOKS = Group(ORDERS, "billing"), Group(ORDERS, "hand"), Group(LEDGER, "books", strict=True)
STOCK = Group(ORDERS, "stock")
TAXES, AUDIT = Group(LEDGER, "taxes", atomic=True), Group(LEDGER, "audit", atomic=True)
WORK = Group(JOBS, "tasks")
GROUPS = (BILLING, HAND, STOCK, BOOKS, TAXES, AUDIT, WORK)
TOPICS = (ORDERS, LEDGER, JOBS)
STORED = (*TOPICS, *(f"{topic}_scheduled" for topic in TOPICS))
"""The topics, and where their scheduled messages wait."""
SMALL_BACKLOG = 5
"""Number of messages claimed ahead from which a thread of every second worker gets a lot."""


def mqueue(lease: float) -> dict[str, Any]:
    """Return the ``MQUEUE`` setting of a run. Retention is 0, so the queue deletes each message as soon as possible."""
    return {
        "POLL_INTERVAL": 0.05,
        "DISCOVERY_INTERVAL": 0.5,
        "LEASE_DURATION": lease,
        "LEASE_RENEWAL_INTERVAL": lease / 5,
        "GC_INTERVAL": 0.5,
        "RETENTION": 0,
    }


def environment(directory: Path, name: str, lease: float, *, clock: float = 0) -> dict[str, str]:
    """Return the environment variables of a process of the run."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.proof.settings",
        "PROOF_HISTORY": str(directory),
        "PROOF_NAME": name,
        "TEST_MQUEUE": json.dumps(mqueue(lease)),
        "TEST_CLOCK": str(clock),
    }


def my_name() -> str:
    """Return the name of this process in the history."""
    return os.environ["PROOF_NAME"]


def my_directory() -> Path:
    """Return the directory of the history."""
    return Path(os.environ["PROOF_HISTORY"])


def my_writer() -> Writer:
    return Writer(my_directory(), my_name())


SHARES = {
    "nap": 0.02,  # a few milliseconds
    "dawdle": 0.002,  # longer than the other messages of a lot wait
    "fail": 0.02,  # once or twice
    "postpone": 0.003,  # now and then
    "always fail": 0.002,
    "reject": 0.002,
    "overstay": 0.0004,  # longer than the visibility timeout
    "die": 0.00004,  # kills its process
}
"""The share of messages with each request. The other messages just succeed."""


def wish(dice: random.Random) -> dict[str, str]:
    """Return a new message's request, and the group that follows it. In other groups the handler just succeeds."""
    place = dice.random()
    for what, share in SHARES.items():
        if place < share:
            # The process that consumes by hand handles its messages in one thread. A death would hit all of them.
            groups = [group for group in GROUPS if group is not HAND] if what == "die" else GROUPS
            return {"do": what, "on": dice.choice(groups).name}
        place -= share
    return {}
