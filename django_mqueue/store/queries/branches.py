"""Run one query for many topics or groups in few statements: each statement is a UNION ALL of copies of the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...policy.batching import batches
from ..connection import session
from ..connection.dialect import flat, union

BRANCHES = 50
"""The maximum number of topics or groups in one statement."""


def fetch_each(
    using: str, query: str, params: Sequence[Sequence[Any]], at_once: int = BRANCHES
) -> list[list[Sequence[Any]]]:
    """Run the query for each list of parameters. Return the rows of each, without their first column.

    The first column and first parameter of the query are the number of the list.
    """
    found: list[list[Sequence[Any]]] = [[] for _ in params]
    for some in batches([*enumerate(params)], at_once):
        numbered = flat([number, *values] for number, values in some)
        for number, *row in session.fetch(using, union(query, len(some)), numbered):
            found[int(number)].append(row)
    return found
