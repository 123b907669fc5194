"""``manage.py mqueue``: the verbs that publish, change and delete messages."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.browse import operations
from django_mqueue.inspect import messages
from django_mqueue.models import DeliveryState, Message
from django_mqueue.service.actions import recent
from tests.features.request.asking import later
from tests.support.processes import database_ms
from tests.support.subscribers import QUICK, consume_rest, poll_until, settle
from tests.support.transactions import HeldTransaction

from .conftest import Run

pytestmark = pytest.mark.django_db(transaction=True)
Json = Callable[..., dict[str, Any]]


def test_publish(mqueue_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mqueue_json("publish", "orders", '{"order": 1}', "--dry-run") == {
        "topic": "orders", "messages": 1, "bytes": 11,
    }  # fmt: skip
    assert not Message.objects.exists()
    arguments = ("publish", "orders", '{"order": 1}', "--key", "7", "--id", "a")
    (one,) = mqueue_json(*arguments, "--header", "from=shop")["published"]
    assert (one["id"], one["key"], one["created"]) == ("a", "7", True)
    (again,) = mqueue_json(*arguments)["published"]
    assert again["created"] is False
    monkeypatch.setattr("sys.stdin", io.StringIO('{"order": 2}\n\n{"order": 3}\n'))
    assert len(mqueue_json("publish", "orders", "-", "--lines", "--delay", "10m")["published"]) == 2
    assert [one.headers["from"] for one in messages("orders")] == ["shop"]
    assert len(messages("orders", status="scheduled")) == 2
    assert [one.action for one in recent("orders")] == ["publish"] * 2, "a duplicate is not stored"


def test_publish_says_which_line_is_wrong(mqueue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"order": 2}\norder\n'))
    with pytest.raises(CommandError, match="line 2 is not JSON"):
        mqueue("publish", "orders", "-", "--lines")
    with pytest.raises(CommandError, match="give - as the payload"):
        mqueue("publish", "orders", "1", "--lines")
    assert not Message.objects.exists()


def test_publish_reads_lines_as_they_are(mqueue_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('"one\u2028line"\n"two"\n'))
    mqueue_json("publish", "orders", "-", "--lines", "--key", "k")
    assert [one.payload for one in messages("orders")] == ["one\u2028line", "two"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\r\n\x00")))
    mqueue_json("publish", "files", "-", "--bytes")
    assert [one.payload for one in messages("files")] == [b"\xff\r\n\x00"]


def test_a_name_with_two_values_is_refused(mqueue: Run) -> None:
    """A message must match all values. The last one alone would select other messages."""
    publish("orders", {"customer": {"id": 7}}, key="k", headers={"region": "eu"})
    for name, first, second in (
        ("--where", "customer.id=7", "$.customer.id=8"),
        ("--header", "region=eu", "region=us"),
    ):
        with pytest.raises(CommandError, match=f"{name} gives '(customer.id|region)' twice"):
            mqueue("erase", name, first, name, second, "--yes")
    assert "Messages: 1" not in mqueue("peek", "orders", "--where", "customer.id=8")
    assert Message.objects.filter(topic="orders").count() == 1


def test_a_delay_is_measured_by_the_databases_clock(mqueue: Run) -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    with later(7_200):
        mqueue("delay", "orders", "--group", "billing", "--all", "--for", "1h")
    hours = (DeliveryState.objects.get().invisible_until - database_ms()) / 3_600_000
    assert 2.5 < hours < 3.5


def test_hold_delay_hurry_and_unhold(mqueue: Run, mqueue_json: Json) -> None:
    subscribe("orders", "billing")
    for number in range(4):
        publish("orders", {"order": {"id": number}})
    with pytest.raises(CommandError, match="no filter is given"):
        mqueue("hold", "orders", "--group", "billing")
    one = ("--group", "billing", "--where")
    assert mqueue_json("hold", "orders", *one, "$.order.id=1", "--dry-run")["messages"] == 1
    assert mqueue_json("hold", "orders", *one, "order.id=1", "--why", "wrong price")["messages"] == 1
    assert mqueue_json("delay", "orders", *one, "order.id=2", "--for", "2h")["messages"] == 1
    assert mqueue_json("delay", "orders", *one, "order.id=3", "--until", "2999-01-01")["messages"] == 1
    with Subscription("orders", "billing") as subscription:
        assert [found.payload["order"]["id"] for found in consume_rest(subscription)] == [0]
        assert mqueue_json("hurry", "orders", *one, "order.id=3")["messages"] == 1
        assert [found.payload["order"]["id"] for found in poll_until(subscription, 1)] == [3]
        assert "Messages: 1" in mqueue("unhold", "orders", "--all-groups", "--all")
        assert [found.payload["order"]["id"] for found in poll_until(subscription, 1)] == [1]
    assert [found.action for found in recent("orders")][:5] == [
        "unhold",
        "send_to_front",
        "delay",
        "delay",
        "hold",
    ]


def test_redeliver(mqueue_json: Json) -> None:
    publish("orders", 1, id="a")
    with Subscription("orders", "billing") as subscription:
        consume_rest(subscription)
        settle(subscription)
        assert mqueue_json("redeliver", "orders", "--group", "billing", "--id", "a")["messages"] == 1
        assert [found.id for found in poll_until(subscription, 1)] == ["a"]


def test_remove_asks(mqueue: Run, mqueue_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    monkeypatch.setattr("sys.stdin", terminal := io.StringIO("no\nyes\n"))
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    with pytest.raises(CommandError, match="not confirmed; nothing was changed"):
        mqueue("remove", "orders", "--group", "billing", "--all")
    assert "Messages: 1" in mqueue("remove", "orders", "--group", "billing", "--all", "--by", "alice")
    assert recent("orders")[0].details["messages"] == 1
    assert mqueue_json("remove", "orders", "--group", "billing", "--all", "--yes")["messages"] == 0


def test_redrive_and_purge(mqueue: Run, mqueue_json: Json) -> None:
    for number in range(3):
        publish("orders", {"order": number}, id=str(number))
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 3):
            delivery.reject("ValueError: no" if delivery.id == "1" else "KeyError: 'price'")
        assert mqueue_json("redrive", "orders", "--error", "KeyError", "--dry-run")["dead_letters"] == 2
        assert mqueue_json("redrive", "orders", "--where", "order=0")["dead_letters"] == 1
        assert [found.id for found in poll_until(subscription, 1)] == ["0"]
        with pytest.raises(CommandError, match="give --yes"):
            mqueue("purge", "orders")
        assert "Dead letters: 2" in mqueue("purge", "orders", "--yes")
    assert [found.action for found in recent("orders")][:2] == ["purge", "redrive"]


def test_a_dead_letter_is_chosen_by_its_id_and_key(mqueue_json: Json) -> None:
    for key in ("ann", "bob"):
        publish("orders", key, id="a", key=key)
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.reject("no")
        assert mqueue_json("redrive", "orders", "--id", "a", "--key", "ann")["dead_letters"] == 1
        assert [found.payload for found in poll_until(subscription, 1)] == ["ann"]
    assert mqueue_json("purge", "orders", "--key", "ann", "--dry-run")["dead_letters"] == 0
    assert mqueue_json("purge", "orders", "--key", "bob", "--dry-run")["dead_letters"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("redrive", "odrers"),
        ("purge", "odrers", "--dry-run"),
        ("hold", "odrers", "--all-groups", "--all"),
    ],
)
def test_a_mistyped_topic(mqueue: Run, arguments: tuple[str, ...]) -> None:
    subscribe("orders", "billing")
    with pytest.raises(CommandError, match=r"topic 'odrers' is unknown: .* Similar names: orders$"):
        mqueue(*arguments)


def test_a_known_topic_without_dead_letters(mqueue: Run) -> None:
    subscribe("orders", "billing")
    assert "Dead letters: 0" in mqueue("redrive", "orders")


def test_the_record_of_a_redrive_is_part_of_its_transactions(mqueue_json: Json) -> None:
    publish("orders", {"order": 0}, key="k")
    with Subscription("orders", "billing") as subscription:
        poll_until(subscription, 1)[0].reject("KeyError: 'price'")
    options = ("--yes", "--where", "order=0", "--failed-after", "2026-01-01", "--by", "alice")
    letter = Message.objects.filter(topic="orders_dlq").select_for_update()
    with HeldTransaction(lambda: list(letter)):
        assert mqueue_json("purge", "orders", *options)["dead_letters"] == 0
    assert "purge" not in [one.action for one in recent("orders")], "nothing was purged"
    assert mqueue_json("purge", "orders", *options)["dead_letters"] == 1
    (newest, *_) = recent("orders")
    assert (newest.action, newest.by, newest.details["messages"]) == ("purge", "alice", 1)
    assert newest.details["filters"] == {
        "failed_after": "2026-01-01 00:00:00+00:00", "payload__order": "…",
    }  # fmt: skip


def test_an_interrupted_action_is_recorded_with_its_total(
    mqueue: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe("orders", "billing")
    publish_many("orders", [OutgoingMessage(n, key="k") for n in range(1_100)])
    change, calls = operations._Move._change, []

    def interrupted(self: Any, cursor: Any, *, batch: Any) -> int:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return change(self, cursor, batch=batch)

    monkeypatch.setattr(operations._Move, "_change", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mqueue("hold", "orders", "--group", "billing", "--all")
    assert recent("orders")[0].details["messages_in_all"] == 1_000


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_erasing_from_a_mistyped_topic_says_so(mqueue: Run, mqueue_json: Json, option: str) -> None:
    publish("orders", 1, key="ann")
    arguments = ("erase", "--topic", "odrers", "--key", "ann", option)
    text = "topic 'odrers' is unknown: it has no message and no group. Similar names: orders"
    assert f"The {text}." in mqueue(*arguments)
    assert mqueue_json(*arguments)["note"] == text


def test_erase(mqueue: Run, mqueue_json: Json) -> None:
    publish("orders", 1, key="ann")
    publish("mail", 1, key="ann", delay=60)
    with pytest.raises(CommandError, match="needs a selection"):
        mqueue("erase")
    found = mqueue_json("erase", "--key", "ann", "--dry-run")["found"]
    assert found == [{"topic": "mail_scheduled", "messages": 1}, {"topic": "orders", "messages": 1}]
    assert "A second search found no message" in mqueue("erase", "--key", "ann", "--yes")
    assert not Message.objects.filter(partition_key="ann").exists()
    assert "no messages" in mqueue("erase", "--key", "ann", "--yes")
    assert mqueue_json("erase", "--key", "ann") == {"erased": []}


def test_gc(mqueue_json: Json) -> None:
    with override_settings(MQUEUE={**QUICK, "RETENTION": 0.001, "GC_INTERVAL": 3600}):
        publish("orders", 1)
        with Subscription("orders", "billing") as subscription:
            consume_rest(subscription)
            settle(subscription)
        (row,) = mqueue_json("gc", "orders", "--dry-run")["topics"]
        assert ("deleted" in row, row["kept"]) == (False, 1)
        (row,) = mqueue_json("gc")["topics"]
        assert (row["topic"], row["deleted"], row["kept"]) == ("orders", 1, 0)
    with pytest.raises(CommandError, match="unrecognized arguments: --why"):
        mqueue_json("gc", "--why", "it is not recorded")


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_an_empty_error_selects_nothing_and_is_refused(mqueue: Run, verb: str) -> None:
    """A shell script may pass a variable that is not set."""
    with Subscription("orders", "billing") as subscription:
        publish("orders", 1)
        poll_until(subscription, 1)[0].reject("ValueError: no")
    arguments = ("--yes",) if verb == "purge" else ()
    with pytest.raises(CommandError, match="error must be"):
        mqueue(verb, "orders", "--error", "", *arguments)
    assert Message.objects.filter(topic="orders_dlq").count() == 1


def test_a_bad_line_is_named_by_its_number(mqueue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"order": 2}\n\n{"order"\n'))
    with pytest.raises(CommandError, match="line 3 is not JSON"):
        mqueue("publish", "orders", "-", "--lines")
    monkeypatch.setattr("sys.stdin", io.StringIO('1\n"' + "x" * 2_000 + '"\n'))
    with (
        override_settings(MQUEUE={"MAX_PAYLOAD_BYTES": 1_024}),
        pytest.raises(CommandError, match=r"^line 2: payload is 2002 bytes"),
    ):
        mqueue("publish", "orders", "-", "--lines")
    assert not Message.objects.exists()


def test_a_header_with_two_values_is_refused(mqueue: Run) -> None:
    with pytest.raises(CommandError, match="--header gives 'a' twice"):
        mqueue("publish", "orders", "1", "--header", "a=1", "--header", "a=2")
    with pytest.raises(CommandError, match=r"--where gives 'customer\.id' twice"):
        mqueue("redrive", "orders", "--where", "customer.id=1", "--where", "customer.id=2")
