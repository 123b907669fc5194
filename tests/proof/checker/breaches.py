"""The findings of a check, each with the story of its message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from ..history import Event, told
from .index import History
from .stories import Story


@dataclass(frozen=True)
class Rules:
    """The promises of a run, in seconds.

    ``lease`` is ``LEASE_DURATION``. ``slack`` is the delay that a busy machine may add to a note, an answer or a
    takeover. ``takeover`` is this delay for takeovers alone; None: ``slack``. ``listed`` is the number of breaches of a
    rule that are reported with their stories.
    """

    lease: float
    slack: float
    takeover: float | None = None
    listed: int = 20

    @property
    def lease_ns(self) -> int:
        return int(self.lease * 1e9)

    @property
    def slack_ns(self) -> int:
        return int(self.slack * 1e9)

    @property
    def takeover_ns(self) -> int:
        return int((self.slack if self.takeover is None else self.takeover) * 1e9)


@dataclass(frozen=True, slots=True)
class Finding:
    """A breach without its story. ``events`` are the events that belong to no message."""

    subject: str
    text: str
    stories: tuple[Story, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Breach:
    """A broken promise: the rule, the message, the reason, and all events of the message."""

    rule: str
    subject: str
    text: str
    story: tuple[Event, ...]

    def __str__(self) -> str:
        head = f"{self.rule}: {self.subject}: {self.text}" if self.subject else f"{self.rule}: {self.text}"
        return "\n".join([head, *(f"    {line}" for line in told(self.story))])


class Breaches:
    """Convert the findings of one rule to breaches."""

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
