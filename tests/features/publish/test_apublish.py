"""``apublish`` stores what ``publish`` stores."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import get_type_hints

import pytest

from django_mqueue import DuplicateMessage, apublish, publish, scheduled
from django_mqueue.models import Message
from django_mqueue.service.publish import PublishOptions
from django_mqueue.testing import published

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_has_the_arguments_of_publish() -> None:
    parameters = inspect.signature(publish).parameters.values()
    assert set(get_type_hints(PublishOptions)) == {
        one.name for one in parameters if one.kind is one.KEYWORD_ONLY
    }


def test_it_stores_the_message_with_all_its_values() -> None:
    async def work() -> None:
        done = await apublish("t", {"n": 1}, key="k", id="a", kind="made", headers={"h": 1})
        assert done.created
        await apublish("t", 2, priority=7)
        await apublish("t", 3, id="later", delay=timedelta(hours=1))

    asyncio.run(work())
    first, second = published("t")
    assert (first.payload, first.key, first.id, first.kind, first.headers) == (
        {"n": 1}, "k", "a", "made", {"h": 1},
    )  # fmt: skip
    assert (second.payload, second.priority) == (2, 7)
    assert [message.payload for message in scheduled("t")] == [3]


def test_many_at_once() -> None:
    async def work() -> None:
        await asyncio.gather(*(apublish("t", number) for number in range(20)))

    asyncio.run(work())
    assert sorted(message.payload for message in published("t")) == list(range(20))


def test_its_errors_are_those_of_publish() -> None:
    publish("t", 1, id="a")
    with pytest.raises(DuplicateMessage):
        asyncio.run(apublish("t", 1, id="a", on_duplicate="error"))
    with pytest.raises(ValueError, match="topic"):
        asyncio.run(apublish("", 1))
    assert Message.objects.count() == 1
