"""Ctrl-C or a signal handler's exception ends a poll in the middle of its claim. The next poll repeats the claim."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from django_mqueue import Subscription, publish
from django_mqueue.protocol import claiming
from django_mqueue.protocol.delivery import make_delivery
from django_mqueue.store import delivery_state
from django_mqueue.store.connection import session
from tests.support.subscribers import poll_until

pytestmark = pytest.mark.django_db(transaction=True)


def before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def claimed(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    patch.setattr(delivery_state, "claimed", claimed)


def after_the_commit(patch: pytest.MonkeyPatch) -> None:
    def run(*arguments: Any, **options: Any) -> Any:
        session.run(*arguments, **options)
        raise KeyboardInterrupt

    patch.setattr(claiming, "session", SimpleNamespace(run=run))


def between_two_messages(patch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make(*arguments: Any) -> Any:
        if made:
            raise KeyboardInterrupt
        made.append(make_delivery(*arguments))
        return made[0]

    patch.setattr(claiming, "make_delivery", make)


@pytest.mark.parametrize("interrupt", [before_the_commit, after_the_commit, between_two_messages])
@pytest.mark.parametrize("strict", [True, False])
def test_the_messages_come_with_the_next_poll(strict: bool, interrupt: Any) -> None:
    for number in range(2):
        publish("orders", number, key=str(number))
    with Subscription("orders", "billing", strict=strict) as subscription:
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch)
            with pytest.raises(KeyboardInterrupt):
                poll_until(subscription, 2)
        found = poll_until(subscription, 2)
        assert [delivery.attempt for delivery in found] == [1, 1]
