"""Missing offsets are those that the database assigned but a reader has not seen, above the settled offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.policy.missing_offsets import MissingOffsets

OFFSETS = st.sets(st.integers(1, 60), max_size=40)


def members(missing: MissingOffsets) -> set[int]:
    return {offset for first, last in missing.ranges for offset in range(first, last + 1)}


def made_of(seen: set[int]) -> MissingOffsets:
    missing = MissingOffsets()
    position = 0
    for offset in sorted(seen):
        missing.add(position + 1, offset - 1)
        position = offset
    return missing


def is_tidy(missing: MissingOffsets) -> bool:
    """Return True if the ranges rise, do not overlap, and are not empty."""
    flat = [bound for pair in missing.ranges for bound in pair]
    return flat == sorted(flat) and len(members(missing)) == sum(
        last - first + 1 for first, last in missing.ranges
    )


@given(OFFSETS)
def test_gaps_are_all_that_was_passed_over(seen: set[int]) -> None:
    missing = made_of(seen)
    assert members(missing) == set(range(1, max(seen, default=0))) - seen
    assert is_tidy(missing)


@given(OFFSETS, st.lists(st.integers(1, 60)))
def test_what_appears_is_taken_out_once(seen: set[int], appeared: list[int]) -> None:
    """``take`` returns only offsets that were missing."""
    missing = made_of(seen)
    before = members(missing)
    assert missing.take(appeared) == before & set(appeared)
    assert members(missing) == before - set(appeared)
    assert missing.take(appeared) == set()
    assert is_tidy(missing)


@given(OFFSETS, st.integers(0, 70))
def test_what_is_settled_is_forgotten(seen: set[int], settled: int) -> None:
    missing = made_of(seen)
    before = members(missing)
    missing.drop_settled(settled)
    assert members(missing) == {offset for offset in before if offset > settled}
    assert is_tidy(missing)


@given(OFFSETS, st.integers(0, 70), st.integers(1, 10))
def test_a_part_of_them_is_the_first_ones_from_a_start(seen: set[int], start: int, count: int) -> None:
    missing = made_of(seen)
    part = MissingOffsets()
    part.ranges = missing.some(start, count)
    rest = {offset for offset in members(missing) if offset >= start}
    assert members(part) <= rest
    assert len(part) <= count
    if len(part) < count:
        assert members(part) == rest
    elif rest:
        assert members(part) == {offset for offset in rest if offset <= max(members(part))}


def test_an_empty_range_is_none() -> None:
    missing = MissingOffsets()
    missing.add(5, 4)
    assert not missing
