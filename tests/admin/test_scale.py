"""No page of the admin costs more where there is ten times as much: the benchmark's pages over two of its worlds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from tests.benchmarks import world as worlds
from tests.benchmarks.measuring import Measured, measure
from tests.benchmarks.views import LISTED, View, views

SMALL, LARGE = (worlds.Size(messages, partitions=100, topics=20) for messages in (12_000, 120_000))

STATEMENTS = 700
"""Of a page that looks at many topics, or at many places of the log. The overview looks at all topics to find the
worst, and then at those on the page once more; the former is kept for half a minute."""


def costs(client: Client, size: worlds.Size) -> Iterator[tuple[str, View, Measured]]:
    """Of each page by its name."""
    worlds.clear()
    ContentType.objects.get_for_models(*apps.get_models())  # Django remembers them from here on.
    world = worlds.make(size)
    with worlds.as_of(world):
        for name, view in views(world).items():
            if not view.is_like_others:
                yield name, view, measure(client, view, times=1)


@pytest.mark.exhaustive
@pytest.mark.django_db(transaction=True)
def test_ten_times_as_many_rows_cost_no_page_more(admin_client: Client) -> None:
    """Statements and rows read, by the server's own counters. What counts, or looks for something, up to a limit of its
    own, comes to that limit only where there is more; a look through the log would go beyond it."""
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
