"""``manage.py mqueue``: subscribe, unsubscribe, reset, pause, resume and release, and the record of these actions."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError

from django_mqueue import Subscription, publish, release, reset, subscribe
from django_mqueue.models import Offset, PartitionLease
from django_mqueue.service import releasing
from django_mqueue.service.actions import recent
from django_mqueue.store import leases
from tests.factories import LeaseFactory

from .conftest import Run

pytestmark = pytest.mark.django_db(transaction=True)
Json = Callable[..., dict[str, Any]]


def test_subscribe_and_unsubscribe(mqueue: Run, mqueue_json: Json) -> None:
    assert mqueue_json("subscribe", "orders", "billing", "--dry-run")["is_new"] is True
    assert recent("orders") == []
    assert mqueue_json("subscribe", "orders", "billing", "--by", "alice", "--why", "a new service")["is_new"]
    assert "did not change" in mqueue("subscribe", "orders", "billing")
    with pytest.raises(CommandError, match="give --yes to confirm"):
        mqueue("unsubscribe", "orders", "billing")
    assert "unregistered" in mqueue("unsubscribe", "orders", "billing", "--yes", "--by", "bob")
    found = [(one.action, one.group, one.by, one.why) for one in recent("orders")]
    assert found == [
        ("unsubscribe", "billing", "bob", ""),
        ("subscribe", "billing", "alice", "a new service"),
    ]


def test_reset_shows_its_effect_first(mqueue_json: Json) -> None:
    subscribe("orders", "billing")
    for number in range(3):
        publish("orders", {"order": number}, key="1")
    document = mqueue_json("reset", "orders", "billing", "latest", "--dry-run")
    assert [row["messages"] for row in document["effect"]] == [0, 3, 0]
    mqueue_json("reset", "orders", "billing", "latest", "--yes", "--why", "test data")
    assert recent("orders", "billing")[0].why == "test data"
    with Subscription("orders", "billing") as subscription:
        assert subscription.poll() == []


def test_reset_says_first_that_subscribers_run(mqueue: Run) -> None:
    with Subscription("orders", "billing"):
        assert "stop them, or give --force" in mqueue("reset", "orders", "billing", "latest", "--dry-run")
        with pytest.raises(CommandError, match="running subscribers"):
            mqueue("reset", "orders", "billing", "latest")


def test_reset_refuses_a_group_that_changed_after_the_preview(
    mqueue: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe("orders", "billing")

    def answer(question: str) -> str:
        reset("orders", "billing", "earliest")
        return "yes"

    monkeypatch.setattr("sys.stdin", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    with pytest.raises(CommandError, match="was reset or registered again meanwhile"):
        mqueue("reset", "orders", "billing", "latest")
    monkeypatch.undo()
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    with pytest.raises(CommandError, match="not confirmed"):  # The terminal was closed.
        mqueue("reset", "orders", "billing", "latest")


def test_pause_and_resume(mqueue_json: Json) -> None:
    for group in ("billing", "mail"):
        subscribe("orders", group)
    assert mqueue_json("pause", "orders", "--dry-run")["groups_changed"] == 2
    assert mqueue_json("pause", "orders", "billing", "--by", "alice")["groups_changed"] == 1
    assert mqueue_json("pause", "orders")["groups_changed"] == 1
    assert mqueue_json("resume", "orders")["groups_changed"] == 2
    actions = recent("orders", "billing")[:3]
    assert [one.action for one in actions] == ["resume", "pause", "pause"]
    assert actions[2].by == "alice"
    assert "@" in actions[0].by, "without --by, the process is recorded"


def test_release(mqueue_json: Json) -> None:
    publish("orders", {"order": 1}, key="1")
    with Subscription("orders", "billing", name="first") as subscription:
        assert subscription.poll()
        assert mqueue_json("release", "orders", "billing", "--subscriber", "first", "--dry-run") == {
            "would_release": [{"partition": "1", "subscriber": "first"}]
        }
        document = mqueue_json("release", "orders", "billing", "--partition", "1")
        assert document["released"] == [{"partition": "1"}]


def test_an_interrupted_release_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction releases one lease. The third one fails."""
    subscribe("orders", "billing")
    for number in range(3):
        LeaseFactory(partition_key=f"k{number}")
    freed, set_free = list[int](), leases.set_free

    def fail_third(*arguments: Any, **options: Any) -> Any:
        if len(freed) == 2:
            raise KeyboardInterrupt
        freed.append(1)
        return set_free(*arguments, **options)

    monkeypatch.setattr(releasing, "batches", lambda found: [[one] for one in found])
    monkeypatch.setattr(leases, "set_free", fail_third)
    with pytest.raises(KeyboardInterrupt):
        release("orders", "billing", subscriber="worker-1")
    assert PartitionLease.objects.exclude(holder="").count() == 1
    assert recent("orders")[0].details["leases_in_all"] == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("pause", "orders", "nobody"), "not registered"),
        (("pause", "orders", "nobody", "--dry-run"), "not registered"),
        (("top", "--interval=-1"), "must not be negative"),
        (("reset", "orders", "nobody", "yesterday"), "earliest, latest, an offset or an ISO 8601 time"),
        (("release", "orders", "billing"), "partition or a subscriber"),
        (("why", "orders", "5", "--key", "k"), "--key needs --id"),
    ],
)
def test_errors_name_the_cause(mqueue: Run, arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        mqueue(*arguments)


def test_pausing_a_mistyped_topic_is_a_problem(mqueue: Run) -> None:
    subscribe("orders", "billing")
    with pytest.raises(CommandError, match=r"topic 'odrers' is unknown: .* Similar names: orders$"):
        mqueue("pause", "odrers")


def test_unsubscribing_from_a_mistyped_topic_is_a_problem(mqueue: Run) -> None:
    """It stores nothing. State that is left of a topic without messages and groups is deleted nevertheless."""
    subscribe("orders", "billing")
    with pytest.raises(CommandError, match=r"topic 'odrers' is unknown: .* Similar names: orders$"):
        mqueue("unsubscribe", "odrers", "billing", "--yes")
    assert not Offset.objects.filter(topic="odrers").exists()
    LeaseFactory(topic="odrers", consumer_group="billing")
    mqueue("unsubscribe", "odrers", "billing", "--yes")
    assert not PartitionLease.objects.exists()


def test_a_lease_of_another_subscriber_is_not_listed(mqueue_json: Json) -> None:
    publish("orders", 1, key="k")
    with Subscription("orders", "billing", name="w1") as subscription:
        assert len(subscription.poll()) == 1
        of = ("leases", "orders", "billing", "--partition", "k")
        assert [row["subscriber"] for row in mqueue_json(*of, "--subscriber", "w1")["leases"]] == ["w1"]
        assert mqueue_json(*of, "--subscriber", "w2")["leases"] == []


def test_a_mistyped_partition_is_a_problem(mqueue: Run, mqueue_json: Json) -> None:
    publish("orders", 1, key="k")
    subscribe("orders", "billing")
    assert [
        row["partition"] for row in mqueue_json("leases", "orders", "billing", "--partition", "k")["leases"]
    ] == ["k"]
    with pytest.raises(CommandError, match="partition 'kk' is unknown: topic 'orders' has no message of it"):
        mqueue("leases", "orders", "billing", "--partition", "kk")


def test_a_long_key_is_printed_whole(mqueue: Run) -> None:
    """It can be copied into another command."""
    key = "k" * 255
    publish("orders", 1, key=key)
    subscribe("orders", "billing")
    assert mqueue("leases", "orders", "billing").count("k") == len(key)
