"""Even ranges, fair shares, and offsets as text. Nothing here needs Spark."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.reader.ranges import Range, cuts, rows_each, shares
from django_mqueue.spark.streams.checkpoint import Offsets, parsed

ROWS = some.lists(some.integers(1, 50), min_size=1, max_size=20)


@given(ROWS, some.integers(1, 30))
def test_cuts_make_ranges_that_differ_by_one_row_at_most(pieces: list[int], number: int) -> None:
    total = sum(pieces)
    number = min(number, total)
    behind = [sum(pieces[:place]) + rows for place, rows in cuts(pieces, number)]
    sizes = [end - start for start, end in pairwise([0, *behind])]
    assert behind[-1] == total
    assert len(sizes) == number
    assert max(sizes) - min(sizes) <= 1
    assert all(1 <= rows <= pieces[place] for place, rows in cuts(pieces, number))


@given(some.integers(0, 10_000), some.integers(1, 500), some.integers(1, 40))
def test_ranges_are_no_larger_than_allowed(total: int, most: int, pieces: int) -> None:
    each = rows_each(total, most, pieces)
    assert 1 <= each <= most
    assert each * pieces >= min(total, most * pieces)


@given(some.integers(1, 100), some.lists(some.integers(0, 80), max_size=10))
def test_shares_are_within_the_limit_and_leave_nothing_undone(total: int, backlogs: list[int]) -> None:
    found = shares(total, backlogs)
    assert sum(found) == sum(backlogs) if sum(backlogs) <= total else sum(found) <= total
    assert all(0 <= share <= backlog for share, backlog in zip(found, backlogs, strict=True))
    if any(backlogs):
        assert any(found), "a query that takes nothing of what there is stands still"


def test_a_small_topic_has_a_part_beside_a_large_one() -> None:
    assert shares(10, [10, 1]) == [9, 1]


@given(some.integers(1, 100), some.lists(some.integers(0, 10_000_000), max_size=20))
def test_each_topic_has_a_part_where_there_is_a_row_for_each(total: int, backlogs: list[int]) -> None:
    found = shares(total, backlogs)
    waiting = sum(1 for backlog in backlogs if backlog)
    assert sum(found) == min(total, sum(backlogs))
    assert sum(1 for share in found if share) == min(total, waiting)
    if waiting <= total:
        assert all(share for share, backlog in zip(found, backlogs, strict=True) if backlog)


def test_the_large_ones_are_cut_first() -> None:
    assert shares(10, [1, 1, 1, 1000]) == [1, 1, 1, 7]
    assert min(shares(10_000, [100] * 9 + [10_000_000])) == 1
    assert shares(2, [1, 0, 5, 9]) == [1, 0, 1, 0]


def test_a_stretch_is_dense_where_most_of_it_is_the_topics() -> None:
    assert Range("t", 100, 200, 60).dense
    assert not Range("t", 100, 200, 40).dense


def test_the_text_of_offsets_does_not_depend_on_how_they_came_about() -> None:
    one = Offsets({"b": 2, "a": 1}, {"b": 8, "a": 7}, "q")
    two = Offsets({"a": 1}, {"a": 7}, "q").moved({"b": 2}, {"b": 8})
    assert json.dumps(one.json()) == json.dumps(two.json())
    assert parsed(json.loads(json.dumps(one.json()))) == one
    assert json.dumps(Offsets({"a": 1}).json()) == '{"topics": {"a": 1}}'


def test_a_checkpoint_of_something_else_is_refused() -> None:
    with pytest.raises(OptionError, match="checkpointLocation"):
        parsed({"orders": {"0": 5}})
