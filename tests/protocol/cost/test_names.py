"""The search by halving finds the same names as a loose scan, in the same order, for any characters."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.store.queries import skip_scan
from django_mqueue.store.queries.skip_scan import between, partitions
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

ODD = [
    " 0", " 17", "!", "a", "a b", "a!", "a-", "aa", "aaa", "ab", "b" * 255, "b" * 254 + "c", "ä", "Ä", "ß", "z", "~",
    "~~", "\xa1", "é", "e\u0301", "\ud7ff", "\ue000", "\uffee", "😀", "😀x", "\U0010fffd", "%", "%s", "'", '"', "\\",
    "order/1?x=#", *(f"order-{n}" for n in range(60)), *(f"tenant-42/customer-{n:07d}" for n in range(60)),
]  # fmt: skip


def store(topic: str, names: Iterable[str], each: int = 1) -> None:
    """Store the names as they are, even names that are not allowed as a key."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
            " created_at, published_at) VALUES (%s, %s, %s, '', '1', '{}', 1, 1, 1)",
            [(topic, name, f"id-{n}") for name in names for n in range(each)],
        )


@pytest.fixture(params=[1, 9])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names in the servers' order. Each has one message, or 9: more than one look reads."""
    monkeypatch.setattr(skip_scan, "_with_loose_scan", lambda *_: set())
    store("odd", ODD, request.param)
    store("odd.", ["of another topic"])
    store("od", ["of another topic"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT partition_key FROM queue_messages WHERE topic = 'odd' ORDER BY 1")
        return [name for (name,) in cursor.fetchall()]


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 10_000])
def test_pages_hold_all_names_once_in_order(stored: list[str], limit: int) -> None:
    assert len(stored) == len(ODD)
    found, after = list[str](), ""
    while names := partitions("odd").next("default", after, limit):
        assert len(names) <= limit
        found += names
        after = names[-1]
        if len(found) > 20 * limit:
            stored = stored[: len(found)]
            break
    assert found == stored


def test_a_page_begins_behind_any_text(stored: list[str]) -> None:
    for after in ("a", "m", "order-7", "order-70", "tenant-42/customer-00000", "😀", "\U0010ffff"):
        assert partitions("odd").next("default", after, 5) == [name for name in stored if name > after][:5]


def test_there_may_be_no_names() -> None:
    assert partitions("nothing").next("default", "", 10) == []


def test_names_that_sort_otherwise_than_texts_do_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program stored them. The servers ignore a blank at the end of a name, and sort a tab before it."""
    monkeypatch.setattr(skip_scan, "_with_loose_scan", lambda *_: set())
    names = ["a", "a\t", "a\t\t", "a\tb", "a \t", "b\x00", "b", "b\x01c", "c\n", "c", "d"]
    store("odd", names, 20)
    assert set(partitions("odd").next("default", "", 100)) == set(names)


def test_topics_are_found_by_halving_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_scan, "_with_loose_scan", lambda *_: set())
    for topic in ODD[:10]:
        store(topic, ["k"], 10)
    assert skip_scan.topics_in_log("default") == sorted(set(ODD[:10]))


def test_a_loose_scan_is_used_where_the_server_makes_one() -> None:
    """One statement asks for the plan. The other reads one or two index entries of each partition."""
    publish_many("t", [OutgoingMessage(n, key=f"k{n % 4}") for n in range(2_000)])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE queue_messages")
        cursor.fetchall()
    with counted() as cost:
        assert partitions("t").next("default", "", 10) == ["k0", "k1", "k2", "k3"]
    assert cost.count == 2
    assert cost.rows < 30, cost


@given(st.text(max_size=6), st.text(max_size=6))
def test_the_middle_of_two_texts_is_between_them(one: str, other: str) -> None:
    low, high = sorted((one, other))
    middle = between(low, high)
    assert middle is None or low < middle < high
    if middle is not None:
        middle.encode()


@pytest.mark.parametrize(
    ("low", "high", "middle"),
    [
        ("a", "c", "b"),
        ("k1", "k9", "k5"),
        ("a", "a", None),
        ("ab", "a", None),
        ("a", "b\t", None),
        ("", "b", "A"),
    ],
)
def test_middles(low: str, high: str, middle: str | None) -> None:
    assert between(low, high) == middle
