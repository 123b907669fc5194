"""The admin's pages cost the same with ten times as many rows.

The test requests the benchmark's pages in two of its worlds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from tests.benchmarks import world as worlds
from tests.benchmarks.measuring import Measured, measure
from tests.benchmarks.views import LISTED, View, views

SMALL, LARGE = (worlds.Size(messages, partitions=100, topics=20) for messages in (6_000, 60_000))

STATEMENTS = 700
"""Maximum statements of a page that reads many topics or many parts of the log.

The overview reads all topics to find the worst, then those on the page again. The first result is cached for half a
minute.
"""


def costs(client: Client, size: worlds.Size) -> Iterator[tuple[str, View, Measured]]:
    """Yield the name, the page and the cost of each page."""
    worlds.clear()
    ContentType.objects.get_for_models(*apps.get_models())  # Django caches them here.
    world = worlds.make(size)
    with worlds.as_of(world):
        for name, view in views(world).items():
            if not view.is_like_others:
                yield name, view, measure(client, view, times=1)


@pytest.mark.exhaustive
@pytest.mark.django_db(transaction=True)
def test_ten_times_as_many_rows_cost_no_page_more(admin_client: Client) -> None:
    """Compare statements and rows read, by the server's own counters.

    A page that counts or searches up to its own limit reaches that limit only with more rows. A scan of the log would
    exceed it.
    """
    small = {name: cost for name, _, cost in costs(admin_client, SMALL)}
    problems = []
    for name, view, cost in costs(admin_client, LARGE):
        before = small[name]
        statements, rows = (len(before.statements), len(cost.statements)), (before.rows, cost.rows)
        if cost.status != 200:
            problems.append(f"{name}: status {cost.status}")
        if statements[1] > (STATEMENTS if view.most > LISTED else statements[0]):
            problems.append(f"{name}: {statements[0]} statements, then {statements[1]}")
        if rows[1] > max(1.1 * rows[0] + 100, view.most):
            problems.append(f"{name}: {rows[0]:,} rows, then {rows[1]:,}")
    assert not problems, "\n".join(problems)
