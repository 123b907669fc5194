"""No page of the admin costs more where there is ten times as much: the benchmark's pages over two of its worlds."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.benchmarks import world as worlds
from tests.benchmarks.measuring import Measured, measure
from tests.benchmarks.views import views

SMALL, LARGE = (worlds.Size(messages, partitions=100, topics=20) for messages in (8_000, 80_000))
FULL = 2_000
"""Rows that a page of a full list reads, at most. In the small world some lists are not full."""


def costs(client: Client, size: worlds.Size) -> dict[str, Measured]:
    """Of each page by its name, the second time: Django remembers content types by then."""
    worlds.clear()
    world = worlds.make(size)
    with worlds.as_of(world):
        return {name: measure(client, view, times=2) for name, view in views(world).items()}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_ten_times_as_many_rows_cost_no_page_more(admin_client: Client) -> None:
    """Neither statements nor rows read, by the server's own counters; and every page is there."""
    small, large = costs(admin_client, SMALL), costs(admin_client, LARGE)
    assert {name: cost.status for name, cost in large.items() if cost.status != 200} == {}
    more = {
        name: f"{len(small[name].statements)} statements and {small[name].rows:,} rows,"
        f" then {len(cost.statements)} and {cost.rows:,}"
        for name, cost in large.items()
        if len(cost.statements) != len(small[name].statements)
        or cost.rows > max(1.1 * small[name].rows + 100, FULL)
    }
    assert more == {}
