"""Valid names, and the partitions of messages without a key."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.policy import names


def is_name(value: str) -> bool:
    try:
        return names.check_name("key", value, names.KEY_MAX) == value
    except ValueError:
        return False


@given(st.text(max_size=300))
def test_a_name_has_no_blank_ends_no_controls_and_no_excess(value: str) -> None:
    """A text is a name exactly if it obeys these three rules. ``check_name`` returns a name unchanged."""
    bad = {"Cc", "Cs"} & {unicodedata.category(character) for character in value}
    assert is_name(value) is (0 < len(value) <= 255 and value == value.strip() and not bad)


@given(st.text(max_size=20))
def test_no_key_can_be_a_keyless_partition(value: str) -> None:
    if is_name(value):
        assert names.key_of(value) == value
    partition = names.spread_partition(value.encode("utf-8", "ignore").decode(), 16)
    assert not is_name(partition)
    assert names.key_of(partition) is None


@given(st.integers(1, 4096))
def test_the_spread_uses_every_partition_and_no_more(spread: int) -> None:
    found = {names.spread_partition(f"id-{n}", spread) for n in range(200)}
    assert len(found) <= spread
    assert all(0 <= int(partition) < spread for partition in found)


def test_the_spread_is_even_and_the_same_everywhere() -> None:
    """No process adds a salt to the hash."""
    counts: dict[str, int] = {}
    for n in range(16_000):
        partition = names.spread_partition(f"id-{n}", 16)
        counts[partition] = counts.get(partition, 0) + 1
    assert len(counts) == 16
    assert max(counts.values()) < 1.5 * min(counts.values())
    assert names.spread_partition("mine", 16) == " 0003"


@given(st.integers(names.PRIORITY_MIN, names.PRIORITY_MAX), st.integers(1, 4096))
def test_a_partition_tells_its_priority_and_has_no_key(priority: int, spread: int) -> None:
    partition = names.spread_partition("mine", spread, priority)
    assert names.priority_of(partition) == priority
    assert names.key_of(partition) is None
    assert names.check_partition(partition) == partition


@pytest.mark.parametrize("key", ["+050 0003", "-1", "k +001"])
def test_no_key_has_a_priority(key: str) -> None:
    assert names.priority_of(key) == 0


@pytest.mark.parametrize("value", ["orders_scheduled", "orders_dlq", "_dlq"])
def test_endings_of_derived_topics_are_reserved(value: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        names.check_publish_topic(value, ("_dlq",))
    assert names.check_publish_topic("orders_dlq2", ("_dlq",)) == "orders_dlq2"
