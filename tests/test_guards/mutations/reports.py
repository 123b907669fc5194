"""Guards of what pages and numbers say: what it says about a message or a group is true."""

from __future__ import annotations

from .mutation import Mutation, mutation

_ADMIN = "test_admin"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "the worst of all topics come first on the overview",
        "with forty topics the one with all the dead letters is on the ninth page",
        "admin/standing.py",
        "rows = ranking.ordered(",
        "rows = (lambda rows, sort: rows)(",
        f"{_ADMIN}/test_overview.py::test_the_worst_of_all_topics_come_first",
    ),
    mutation(
        "of too many topics those are looked at that look worst",
        "with a thousand topics the alarms of those late in the alphabet are not found",
        "admin/standing.py",
        "for known in triage.worst_first(conf.database(), topics):",
        "for known in topics:",
        f"{_ADMIN}/test_overview.py::test_of_more_topics_than_can_be_looked_at_those_that_look_worst_are",
    ),
)
