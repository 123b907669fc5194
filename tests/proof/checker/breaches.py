"""What a check finds, with the story of the message that it is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from ..history import Event, told
from .index import History
from .stories import Story


@dataclass(frozen=True)
class Rules:
    """What a run promises. Seconds.

    ``lease``: ``LEASE_DURATION``; ``slack``: how much later than it happened something may be noted, answered or
    taken up on a loaded machine; ``listed``: breaches of a rule that are told with their stories.
    """

    lease: float
    slack: float
    listed: int = 20

    @property
    def lease_ns(self) -> int:
        return int(self.lease * 1e9)

    @property
    def slack_ns(self) -> int:
        return int(self.slack * 1e9)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule yields: a breach whose story is not gathered yet. ``events``: those of no message."""

    subject: str
    text: str
    stories: tuple[Story, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Breach:
    """A promise that was broken: by which rule, for which message, how, and all that happened to it."""

    rule: str
    subject: str
    text: str
    story: tuple[Event, ...]

    def __str__(self) -> str:
        head = f"{self.rule}: {self.subject}: {self.text}" if self.subject else f"{self.rule}: {self.text}"
        return "\n".join([head, *(f"    {line}" for line in told(self.story))])


class Breaches:
    """Makes breaches of one rule's findings."""

    def __init__(self, rule: str, history: History, rules: Rules) -> None:
        self.rule, self.history, self.rules = rule, history, rules

    def of(self, findings: Iterable[Finding]) -> list[Breach]:
        rest = iter(findings)
        listed = [
            Breach(self.rule, one.subject, one.text, self._story(one))
            for one in islice(rest, self.rules.listed)
        ]
        more = sum(1 for _ in rest)
        if more:
            text = f"and {more} more, {len(listed) + more} in all"
            listed.append(Breach(self.rule, "", text, ()))
        return listed

    def _story(self, finding: Finding) -> tuple[Event, ...]:
        return self.history.told_of(finding.stories, finding.events, self.rules.slack_ns)
