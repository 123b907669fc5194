"""The process that consumes by hand writes its silence and its errors to the history, for the checker."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from django_mqueue import publish, subscribe
from tests.proof.crew import PROGRAMS
from tests.proof.history import Fault, Started, now, read
from tests.proof.plan import HAND, environment
from tests.support.processes import Worker, database_url, wait_until
from tests.support.threads import kill_others

pytestmark = pytest.mark.django_db(transaction=True)

NAME, LEASE = "hand-0.1", 2.0


def test_a_batch_that_ends_with_an_error_was_silent_too(tmp_path: Path) -> None:
    """The handler ran longer than a lease, and then its ack failed. Another worker may have had the message by then."""
    subscribe(HAND.topic, HAND.name)
    publish(HAND.topic, {"m": "a", "do": "wait", "for": "door", "on": HAND.name}, key="k")
    variables = {"DATABASE_URL": database_url(), **environment(tmp_path, NAME, LEASE)}

    def started() -> list[Started]:
        return [event for event in read(tmp_path) if isinstance(event, Started)]

    def faults() -> list[Fault]:
        return [event for event in read(tmp_path) if isinstance(event, Fault) and event.kind != "ready"]

    with closing(Worker(("hand-0",), variables, PROGRAMS["hand"])):
        wait_until(started, "the message is given")
        kill_others()
        wait_until(lambda: now() > started()[0].at + LEASE * 1e9, "the lease is over")
        (tmp_path / "door").touch()
        wait_until(lambda: "abandoned" in [fault.kind for fault in faults()], "the answer fails")
    first = [fault.kind for fault in faults()].index("abandoned")  # A slow start also writes both.
    silent, heard, abandoned = faults()[first - 2 : first + 1]
    assert [silent.kind, heard.kind] == ["silent", "heard"]
    assert silent.at <= started()[0].at < heard.at <= abandoned.at
