"""Requests: a caller waits for the reply of a subscriber."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from .doing import PATIENCE, nothing_comes, receive, rolled_back
from .system import Reply, System


class Requester:
    """A thread that calls ``request`` and keeps its outcome."""

    def __init__(self, system: System, request: Callable[[], Reply]) -> None:
        self.system, self._request = system, request
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reply(self) -> Reply:
        """Return the reply, or raise what ``request`` raised."""
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        assert self._reply is not None
        return self._reply

    def _run(self) -> None:
        try:
            self._reply = self._request()
        except BaseException as error:
            self._error = error
        finally:
            self.system.close_connections()


def test_the_first_reply_is_the_answer(system: System) -> None:
    """Each group gets the request. Later replies are not stored, and a reply is not an ack."""
    one, two = system.open("t", "one"), system.open("t", "two")
    requester = Requester(system, lambda: system.request("t", {"item": 7}, timeout=3600))
    (first,), (second,) = receive(one), receive(two)
    assert first.payload == {"item": 7}
    assert first.reply({"price": 3})
    assert not second.reply("too late")
    assert not first.reply("again")
    assert requester.reply().payload == {"price": 3}
    assert first.ack()
    assert second.ack()
    nothing_comes([one, two], system.looks)


def test_a_reply_of_a_rolled_back_transaction_is_no_answer(system: System) -> None:
    """The requester gets the next reply."""
    subscriber = system.open("t", "g")
    requester = Requester(system, lambda: system.request("t", "question", timeout=3600))
    (delivery,) = receive(subscriber)
    with rolled_back(system):
        assert delivery.reply("never")
    assert delivery.reply("answer")
    assert requester.reply().payload == "answer"


def test_a_request_without_a_reply(system: System) -> None:
    """The requester stops waiting. The message stays, and its handler's late reply has no effect."""
    subscriber = system.open("t", "g")
    with pytest.raises(system.unanswered):
        system.request("t", "question", timeout=0.1)
    (delivery,) = receive(subscriber)
    assert not delivery.reply("too late")
    assert delivery.ack()
    nothing_comes(subscriber, system.looks)


def test_a_request_that_is_dead_lettered(system: System) -> None:
    """The requester does not wait for its timeout when no group can reply."""
    subscriber = system.open("t", "g")
    requester = Requester(system, lambda: system.request("t", "question", timeout=3600, group="g"))
    (delivery,) = receive(subscriber)
    assert delivery.reject("no answer")
    with pytest.raises(system.failed):
        requester.reply()
