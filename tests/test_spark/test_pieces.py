"""A long log is counted by several connections at once, and comes to the same. Nothing here needs Spark."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.models import Message
from django_mqueue.spark import pieces
from django_mqueue.spark.errors import NoConnection
from django_mqueue.spark.options import ReadOptions, read_options
from django_mqueue.spark.pieces import Stretch, counted
from django_mqueue.spark.planning import batch, ranges
from django_mqueue.spark.ranges import Piece
from django_mqueue.store import bulk
from tests.support.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPICS = ("invoices", "orders")
STEP = 7
NthAbove = Callable[..., int | None]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests publish is long, and whoever runs them gives way to nobody."""
    monkeypatch.setattr(pieces, "SPAN", 20)
    monkeypatch.setattr(pieces, "gives_way", lambda: False)


@pytest.fixture
def stretches(options: dict[str, str]) -> list[Stretch]:
    """Two topics whose offsets lie between each other's, one of them with a hole that is wider than a span."""
    for first in range(0, 200, 10):
        publish_many("orders", [OutgoingMessage(n, key=f"k{n % 3}") for n in range(first, first + 10)])
        publish_many("invoices", range(first % 40))
    publish_many("elsewhere", range(100))
    publish_many("invoices", range(25))
    offsets = Message.objects.order_by("offset").values_list("offset", flat=True)
    return [(topic, offsets[0] - 1, offsets[len(offsets) - 1]) for topic in TOPICS]


def asked(options: dict[str, str], **more: Any) -> ReadOptions:
    return read_options({**options, "subscribe": ",".join(TOPICS), **{k: str(v) for k, v in more.items()}})


def in_all(found: list[list[Piece]]) -> list[int]:
    return [sum(piece.rows for piece in some) for some in found]


def rows(topic: str) -> int:
    return Message.objects.filter(topic=topic).count()


def connections_there() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()")
        return int(cursor.fetchone()[0])


def count(options: dict[str, str], stretches: list[Stretch], ways: int = pieces.WAYS) -> list[list[Piece]]:
    return counted("default", asked(options).connecting, stretches, STEP, None, ways=ways)


@pytest.mark.parametrize("least", [1, 6, 50])
@pytest.mark.parametrize("most", [3, 1000])
def test_ranges_are_the_same_however_many_count(
    least: int, most: int, options: dict[str, str], stretches: list[Stretch]
) -> None:
    wanted = asked(options, minPartitions=least, maxRecordsPerPartition=most)
    alone, together = (ranges("default", wanted, stretches, ways=ways) for ways in (1, 4))
    for topic in TOPICS:
        mine, theirs = ([r.piece for r in some if r.piece.topic == topic] for some in (alone, together))
        assert [piece.rows for piece in mine] == [piece.rows for piece in theirs]
        assert sum(piece.rows for piece in theirs) == rows(topic)
        for piece in theirs:
            there = Message.objects.filter(topic=topic, offset__gt=piece.above, offset__lte=piece.upto)
            assert there.count() == piece.rows
        assert all(a.upto == b.above for a, b in pairwise(theirs))


def test_pieces_cover_what_is_there_and_no_row_twice(
    options: dict[str, str], stretches: list[Stretch]
) -> None:
    found = count(options, stretches)
    assert in_all(found) == [rows(topic) for topic in TOPICS]
    for some in found:
        assert all(a.upto <= b.above for a, b in pairwise(some))
        assert all(0 < piece.rows <= STEP for piece in some)


class Gate:
    """In place of ``bulk.nth_above``: notes who asks, and lets nobody pass before so many have come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parties: int) -> None:
        self.aliases: set[str] = set()
        self._barrier = threading.Barrier(parties)
        self._lock = threading.Lock()
        self._real = bulk.nth_above
        monkeypatch.setattr(bulk, "nth_above", self)

    def __call__(self, using: str, *args: Any) -> int | None:
        with self._lock:
            first = using not in self.aliases
            self.aliases.add(using)
        if first:
            self._barrier.wait(30)
        return self._answer(using, *args)

    def _answer(self, using: str, *args: Any) -> int | None:
        return self._real(using, *args)


def test_several_connections_count_at_the_same_time_and_are_closed(
    options: dict[str, str], stretches: list[Stretch], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = connections_there()
    gate = Gate(monkeypatch, pieces.WAYS)
    assert in_all(count(options, stretches)) == [rows(topic) for topic in TOPICS]
    assert len(gate.aliases) == pieces.WAYS
    assert "default" in gate.aliases
    wait_until(lambda: connections_there() == before, "the helpers' connections are closed")


def test_what_a_helper_cannot_do_is_done_without_it(
    options: dict[str, str], stretches: list[Stretch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All helpers have taken a span when they lose their connections: who plans counts these, too."""

    class Lost(Gate):
        def _answer(self, using: str, *args: Any) -> int | None:
            if using != "default":
                raise OperationalError(2013, "Lost connection to server during query")
            return super()._answer(using, *args)

    lost = Lost(monkeypatch, pieces.WAYS)
    assert in_all(count(options, stretches)) == [rows(topic) for topic in TOPICS]
    assert len(lost.aliases) == pieces.WAYS


def test_where_no_more_connections_can_be_had_one_counts_all(
    options: dict[str, str], stretches: list[Stretch], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(how: object) -> Any:
        raise NoConnection("Too many connections")

    monkeypatch.setattr(pieces, "connected", none)
    assert in_all(count(options, stretches)) == [rows(topic) for topic in TOPICS]


def test_an_error_of_who_plans_is_told_and_ends_the_helpers(
    options: dict[str, str], stretches: list[Stretch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of their spans: each helper has asked once when the planner is about to wait for them."""
    waiting, asked_by = threading.Event(), Counter[str]()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *args: Any, **kwargs: Any) -> None:
            waiting.set()
            super().shutdown(*args, **kwargs)

    class Refused(Gate):
        def _answer(self, using: str, *args: Any) -> int | None:
            if using == "default":
                raise OperationalError(1142, "SELECT command denied")
            asked_by[using] += 1
            assert waiting.wait(30)
            return super()._answer(using, *args)

    monkeypatch.setattr(pieces, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(pieces, "SPANS", 3)
    before = connections_there()
    Refused(monkeypatch, pieces.WAYS)
    with pytest.raises(OperationalError, match="denied"):
        count(options, stretches)
    assert list(asked_by.values()) == [1] * (pieces.WAYS - 1)
    wait_until(lambda: connections_there() == before, "the helpers' connections are closed")


@pytest.mark.parametrize("reason", ["short", "asked", "gives way"])
def test_one_counts_what_is_short_and_where_others_go_first(
    reason: str, options: dict[str, str], stretches: list[Stretch], monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "short":
        monkeypatch.setattr(pieces, "SPAN", 100_000)
    if reason == "gives way":
        monkeypatch.setattr(pieces, "gives_way", lambda: True)
    gate = Gate(monkeypatch, 1)
    found = count(options, stretches, ways=1 if reason == "asked" else pieces.WAYS)
    assert in_all(found) == [rows(topic) for topic in TOPICS]
    assert gate.aliases == {"default"}


def test_a_batch_is_planned_so(
    options: dict[str, str], stretches: list[Stretch], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, pieces.WAYS)
    found = batch("default", asked(options, minPartitions=6))
    assert sum(each.piece.rows for each in found) == sum(map(rows, TOPICS))
    assert len(gate.aliases) == pieces.WAYS
