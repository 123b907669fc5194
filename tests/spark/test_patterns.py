"""A batch of all topics that match a pattern."""

from __future__ import annotations

import pytest

from django_mqueue import publish
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.reader.planning import batch

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("table", ["messages", "dead_letters", "deliveries"])
def test_a_batch_of_a_pattern_that_matches_nothing_says_so(options: dict[str, str], table: str) -> None:
    """The pattern may be mistyped. It is a warning only, because the topics may not exist yet."""
    publish("orders", 1)
    wanted = read_options({**options, "subscribePattern": "Orders", "table": table})
    with pytest.warns(UserWarning, match="'Orders' matches no whole name of a topic; topics: 'orders"):
        assert batch("default", wanted) == []


@pytest.mark.filterwarnings("error")
def test_a_topic_without_dead_letters_is_no_mistake(options: dict[str, str]) -> None:
    publish("orders", 1)
    assert (
        batch("default", read_options({**options, "subscribePattern": "ord.*", "table": "dead_letters"}))
        == []
    )


@pytest.mark.filterwarnings("error")
def test_a_batch_of_a_pattern_that_matches_says_nothing(options: dict[str, str]) -> None:
    publish("orders", 1)
    (found,) = batch("default", read_options({**options, "subscribePattern": "ord.*"}))
    assert found.rows == 1
