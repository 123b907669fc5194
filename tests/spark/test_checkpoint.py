"""A group follows its query's checkpoint: it acknowledges each batch as soon as it is durable, also the last one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from django_mqueue import publish_many, subscribe
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.spark.database import following, heartbeating
from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.streams.checkpoint import Checkpoint, Offsets
from django_mqueue.spark.streams.query import Query
from tests.support.processes import wait_until
from tests.support.transactions import HeldTransaction

from .conftest import Make
from .streams import newest, stands_at

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

GROUP = "archive"


@pytest.fixture
def make(make: Make, checkpoint: str) -> Make:
    return partial(make, checkpointLocation=checkpoint)


def write(checkpoint: str, batch: int, ended: Offsets, *, durable: bool) -> None:
    """Write the checkpoint files of a batch, as Spark does."""
    for folder in ("offsets", "commits") if durable else ("offsets",):
        Path(checkpoint, folder).mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(ended.json(), separators=(",", ":"))]
    Path(checkpoint, "offsets", str(batch)).write_text("\n".join(lines))
    if durable:
        Path(checkpoint, "commits", str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def begin(query: Query, count: int = 4) -> tuple[Offsets, Offsets]:
    """Publish ten messages.

    Return the offsets where the first batch begins and ends; the batch has ``count`` messages.
    """
    publish_many("orders", range(10))
    begun = query.initial()
    return begun, query.latest(begun, count)


def test_a_query_that_is_stopped_is_done_with_its_last_durable_batch(make: Make, checkpoint: str) -> None:
    query = make()
    begun, first = begin(query)
    write(checkpoint, 0, first, durable=True)
    second = query.latest(first, 3)
    write(checkpoint, 1, second, durable=True)
    last = query.latest(second, None)
    write(checkpoint, 2, last, durable=False)
    assert stands_at(GROUP) == second.above("orders")
    query.stop()
    assert stands_at(GROUP) == second.above("orders") < newest()
    again = make()
    again.done(second)
    assert again.latest(second, None) == last
    write(checkpoint, 2, last, durable=True)
    again.stop()
    assert stands_at(GROUP) == last.above("orders") == newest()
    assert begun.above("orders") == 0


def test_a_batch_that_is_planned_and_not_durable_is_not_done(make: Make, checkpoint: str) -> None:
    query = make()
    _, first = begin(query)
    write(checkpoint, 0, first, durable=False)
    query.stop()
    assert stands_at(GROUP) == 0


def test_a_query_that_waits_for_its_next_trigger_is_done_with_what_is_durable(
    make: Make, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 0.05)
    query = make()
    _, first = begin(query)
    write(checkpoint, 0, first, durable=True)
    wait_until(lambda: stands_at(GROUP) == first.above("orders"), "the group follows its checkpoint")


def test_heartbeats_continue_after_a_file_that_cannot_be_read(
    make: Make, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 0.05)
    query = make()
    _, first = begin(query)
    reads, durable = [], Checkpoint.durable

    def noted(found: Checkpoint, name: str) -> Offsets | None:
        reads.append(name)
        return durable(found, name)

    monkeypatch.setattr(Checkpoint, "durable", noted)
    write(checkpoint, 0, first, durable=False)
    Path(checkpoint, "offsets", "0").write_bytes(b"\xff")
    Path(checkpoint, "commits").mkdir()
    Path(checkpoint, "commits", "0").touch()
    reads.clear()
    wait_until(lambda: len(reads) > 1, "the file is read several times")
    write(checkpoint, 0, first, durable=True)
    wait_until(lambda: stands_at(GROUP) == first.above("orders"), "the group follows its checkpoint")


def test_heartbeats_continue_while_the_topics_row_is_locked(
    make: Make, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same thread moves the group, which needs the lock. Without heartbeats, another query replaces this one."""
    monkeypatch.setattr(heartbeating, "BEAT_EVERY", 0.05)
    query = make()
    _, first = begin(query)
    with HeldTransaction(lambda: subscribe("orders", "other")):
        write(checkpoint, 0, first, durable=True)
        for _ in range(3):
            before = SubscriberHeartbeat.objects.get(consumer_group=GROUP).heartbeat_at
            wait_until(
                lambda: SubscriberHeartbeat.objects.get(consumer_group=GROUP).heartbeat_at > before,  # noqa: B023
                "the query sends a heartbeat",
            )
        assert stands_at(GROUP) == 0
    wait_until(lambda: stands_at(GROUP) == first.above("orders"), "the group follows its checkpoint")


@pytest.mark.parametrize("how", ["stopped", "waits"])
def test_a_batch_that_is_run_again_is_done_when_it_is_durable(
    make: Make, checkpoint: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The process that planned the batch was killed. Spark asks the new process for the batch's ranges only."""
    if how == "waits":
        monkeypatch.setattr(heartbeating, "BEAT_EVERY", 0.05)
    query = make()
    begun, first = begin(query)
    write(checkpoint, 0, first, durable=False)
    query.stop()
    again = make()
    again.ranges(begun, first)
    write(checkpoint, 0, first, durable=True)
    if how == "stopped":
        again.stop()
        assert stands_at(GROUP) == first.above("orders")
    else:
        wait_until(lambda: stands_at(GROUP) == first.above("orders"), "the group follows its checkpoint")


def test_another_query_s_checkpoint_moves_nobody(make: Make, checkpoint: str) -> None:
    query = make()
    begun, first = begin(query)
    other = Offsets(first.next, first.generations, "another")
    write(checkpoint, 0, other, durable=True)
    with pytest.raises(OptionError, match="not recorded there"):
        query.committed(begun)
    query.stop()
    assert stands_at(GROUP) == 0


def test_a_checkpoint_that_is_not_there_is_said(make: Make) -> None:
    query = make()
    begun, _ = begin(query)
    with pytest.raises(
        OptionError, match=r"'checkpointLocation' is .*give the reader the same text as the writer"
    ):
        query.committed(begun)


def test_a_group_that_was_changed_by_hand_is_not_moved_by_a_checkpoint(make: Make, checkpoint: str) -> None:
    query = make()
    _, first = begin(query)
    lives = {topic: life - 1 for topic, life in first.generations.items()}
    write(checkpoint, 0, Offsets(first.next, lives, first.query), durable=True)
    query.stop()
    assert stands_at(GROUP) == 0
    assert SubscriberHeartbeat.objects.get().deregistered_at is not None, "it did not come to leave"


@pytest.mark.parametrize("name", ["{}", "file:{}", "file://{}"])
def test_a_place_on_this_machine_is_named_in_any_way(checkpoint: str, name: str) -> None:
    ended = Offsets({"orders": 5}, {"orders": 1}, "q")
    write(checkpoint, 9, Offsets({"orders": 3}, {"orders": 1}, "q"), durable=True)
    write(checkpoint, 10, ended, durable=True)
    Path(checkpoint, "commits", ".10.crc").write_text("")
    assert Checkpoint(name.format(checkpoint)).durable("q") == ended
    assert Checkpoint(name.format(checkpoint)).durable("p") is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"checkpointLocation": "/c"}, "needs a 'group'"),
        ({"checkpointLocation": "", "group": "g"}, "must not be empty"),
    ],
)
def test_what_is_no_use_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        read_options({"database": "d", "topic": "orders", **given}, streaming=True)
    with pytest.raises(OptionError, match="a batch"):
        read_options({"database": "d", "topic": "orders", "checkpointLocation": "/c"}, streaming=False)


def test_the_reader_s_place_is_its_own(make: Make) -> None:
    """A stopped reader deregisters, so the next reader need not wait for its heartbeat to expire."""
    query = make()
    begun, _ = begin(query)
    query.done(begun)
    query.stop()
    assert following.position("orders", GROUP, using="default") is not None
    assert SubscriberHeartbeat.objects.get().deregistered_at is not None
