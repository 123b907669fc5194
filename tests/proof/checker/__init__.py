"""The checker searches a history for broken promises. It reads only the events.

``check(events, Rules(lease=5.0, slack=3.0))`` returns the breaches, and ``summary(events)`` the numbers of a run. Each
rule is a function. Its docstring states the demand, the excuses for a breach, and the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..history import Event
from . import (
    attempts,
    dead_letters,
    deletion,
    effects,
    existence,
    leftovers,
    losses,
    order,
    overlaps,
    ownership,
    repeats,
)
from .breaches import Breach, Breaches, Finding, Rules
from .index import History
from .summaries import Summary, summary

__all__ = ["RULES", "Breach", "Rules", "Summary", "check", "summary"]

Rule = Callable[[History, Rules], Iterable[Finding]]

RULES: dict[str, Rule] = {
    "history": existence.contradictions,
    "lost": losses.lost,
    "ghost": existence.ghosts,
    "twice": existence.twice,
    "order": order.out_of_order,
    "overlap": overlaps.overlaps,
    "again": repeats.again,
    "effects": effects.not_once,
    "deleted early": deletion.deleted_early,
    "attempts": attempts.miscounted,
    "dead letter": dead_letters.wrong_letters,
    "unowned": ownership.unowned,
    "left": leftovers.left,
}


def check(events: Sequence[Event], rules: Rules) -> list[Breach]:
    """Return the breaches of all rules: the first ``rules.listed`` of each rule, then a count of the others."""
    history = History(events)
    found: list[Breach] = []
    for name, rule in RULES.items():
        found += Breaches(name, history, rules).of(rule(history, rules))
    return found
