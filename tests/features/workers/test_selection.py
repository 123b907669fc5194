"""``runconsumer`` finds and selects its handlers. An unknown or invalid selection is an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import transaction
from django.test import override_settings

from django_mqueue import Message, consumer, publish
from django_mqueue.exceptions import HandlerError
from django_mqueue.models import Offset
from tests.support.processes import Workers
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Step

pytestmark = pytest.mark.django_db(transaction=True)


def groups() -> set[str]:
    return set(Step.objects.values_list("consumer_group", flat=True))


def test_consumers_modules_of_installed_apps_are_found() -> None:
    """No code imports ``tests.support.shop.consumers``. Without a selection, all of its handlers run."""
    publish("orders", {"n": 1}, key="k")
    publish("ledger", {"n": 2}, key="k")
    with Workers() as workers:
        worker = workers.start("--drain")
        assert worker.wait() == 0
        assert "consuming ledger for group books: tests.support.shop.consumers.keep_books" in worker.output()
    assert groups() == {"billing", "audit", "books"}


def test_a_topic_selects_all_of_its_groups() -> None:
    publish("orders", {"n": 1}, key="k")
    publish("ledger", {"n": 2}, key="k")
    run("orders")
    assert groups() == {"billing", "audit"}


def test_topic_and_group_select_one_handler() -> None:
    """Only the group of that handler is registered."""
    publish("orders", {"n": 1}, key="k")
    run("orders:audit")
    assert groups() == {"audit"}
    registered_groups = Offset.objects.filter(partition_key="", topic="orders").exclude(consumer_group="")
    assert [row.consumer_group for row in registered_groups] == ["audit"]


def test_selections_add_up_and_may_overlap() -> None:
    publish("orders", {"n": 1}, key="k")
    publish("ledger", {"n": 2}, key="k")
    run("orders:audit", "orders", "ledger:books")
    assert groups() == {"billing", "audit", "books"}
    assert Step.objects.filter(what="end").count() == 3


@pytest.mark.parametrize("unknown", ["nothing", "orders:nobody", "nothing:billing", ":billing", "order"])
def test_an_unknown_selection_is_an_error_that_lists_the_known(unknown: str) -> None:
    with pytest.raises(CommandError) as caught:
        run(unknown)
    assert repr(unknown) in str(caught.value)
    assert "orders:billing" in str(caught.value)
    assert not Offset.objects.exclude(topic="").exists()


def test_a_second_handler_of_a_topic_and_group_is_an_error_naming_both() -> None:
    def one(message: Message) -> None: ...

    def two(message: Message) -> None: ...

    with registered("t", one):
        with pytest.raises(HandlerError) as caught:
            consumer("t", group="g")(two)
        assert "test_selection" in str(caught.value)
        assert "one" in str(caught.value)
        assert "two" in str(caught.value)
        publish("t", 1)
        run("t:g")


def test_names_given_to_handlers_are_in_that_error() -> None:
    with registered("t", Seen(), name="first"), pytest.raises(HandlerError, match=r"first.*second"):
        consumer("t", group="g", name="second")(Seen())


def test_the_same_topic_in_another_group_is_no_error() -> None:
    publish("t", 1)
    with registered("t", one := Seen(), group="a"), registered("t", two := Seen(), group="b"):
        run("t")
    assert one.payloads == two.payloads == [1]


def test_a_generator_is_no_handler() -> None:
    """A call would run nothing, and the worker would ack each message unhandled."""

    def stray(message: Message) -> Iterator[None]:
        yield

    async def asynchronous(message: Message) -> AsyncIterator[None]:
        yield

    for function in (stray, asynchronous):
        with pytest.raises(TypeError, match="must not be a generator"):
            consumer("t", group="g")(function)


def test_an_unknown_database_is_an_error_that_names_those_there_are() -> None:
    with registered("t", Seen()):
        with pytest.raises(CommandError, match="--database 'nowhere' is no entry of DATABASES: default"):
            run(database="nowhere")
        with (
            override_settings(MQUEUE={"DATABASE": "typo"}),
            pytest.raises(CommandError, match=r"""MQUEUE\["DATABASE"\] 'typo' is no entry of DATABASES"""),
        ):
            run()


def test_runconsumer_is_refused_inside_a_transaction() -> None:
    """The handlers' threads would not see its uncommitted rows."""
    publish("t", 1)
    with (
        registered("t", seen := Seen()),
        transaction.atomic(),
        pytest.raises(CommandError, match="inside a transaction"),
    ):
        run()
    assert not seen.messages


def test_two_decorated_functions_of_one_name_are_two_handlers() -> None:
    """A decorator's function has the decorator's code, file and line."""
    source = "from django.db import transaction\n\n@transaction.atomic\ndef handle(message): ..."
    found = []
    for name in ("a/consumers.py", "b/consumers.py"):
        module: dict[str, Any] = {}
        exec(compile(source, name, "exec"), module)
        found.append(module["handle"])
    with (
        registered("orders", found[0]),
        pytest.raises(HandlerError, match=r"a/consumers\.py.*b/consumers\.py"),
    ):
        consumer("orders", group="g")(found[1])
