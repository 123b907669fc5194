"""Two subscribers have the same name. The heartbeat row of the name belongs to the newer one."""

from __future__ import annotations

import pytest

from django_mqueue import Subscription
from django_mqueue.store import heartbeats
from tests.support.subscribers import engine_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]


def test_only_the_younger_one_of_a_name_beats() -> None:
    with Subscription("t", "g", name="twin") as old, Subscription("t", "g", name="twin") as new:
        assert heartbeats.beat("default", engine_of(new).context.holder)
        assert not heartbeats.beat("default", engine_of(old).context.holder)
