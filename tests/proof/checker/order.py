"""Rule ``order``: a strict group processes the messages of a key in the order of their publication."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .breaches import Finding, Rules
from .excuses import started_late
from .index import History
from .stories import Run, Story
from .world import FOREVER


@dataclass(slots=True, eq=False)
class Turn:
    """A message of a key, as one group orders it.

    ``born`` is the first time at which the message is known to be in the log. ``over`` is the time when the group
    finished it, and ``first`` is its first start.
    """

    story: Story
    sent: int
    born: int
    over: int
    first: int
    runs: list[Run]


def out_of_order(history: History, rules: Rules) -> Iterator[Finding]:
    """In a strict group, B starts only after A is over (done or dead-lettered), and A never starts after B has started.

    A and B are messages of one key, and A was published first. That is: A's transaction had committed (or A had been
    delivered) before B was sent, or one transaction sent both in this order. Messages of publishers that work at the
    same time have no order. A scheduled message enters the log only after it is due: as B it follows A as any message
    does. As A, only its first delivery shows that it was in the log before B was sent.

    Nothing excuses an early start of B: even a stalled worker claimed B only after A was over. (The database sets the
    time of a dead letter, so the rule allows the slack there.) A late start of A is excused if its worker stalled
    between claim and start. This worker does not know yet that another worker finished A.

    The rule covers all pairs by sorting. Of the messages that existed before B was sent, it compares B with the message
    that was over last.
    """
    for name, stories in _by_key(history).items():
        for group in history.groups.get(name[0], ()):
            if group.strict:
                turns = [_turn(history, rules, story, group.group) for story in stories]
                where = f"of key {name[1]!r} in strict group {group.group!r}"
                yield from _across(history, rules, turns, where)
                yield from _inside(history, rules, turns, where)


def _by_key(history: History) -> dict[tuple[str, str], list[Story]]:
    found: defaultdict[tuple[str, str], list[Story]] = defaultdict(list)
    for story in history.stories.values():
        sent = story.sent
        if sent and sent.key is not None and story.fate == "committed" and len(story.sendings) == 1:
            found[sent.topic, sent.key].append(story)
    return found


def _turn(history: History, rules: Rules, story: Story, group: str) -> Turn:
    sending = story.sendings[0].sent
    closed = history.closed.get(sending.transaction)
    committed = closed and closed[0].outcome == "committed" and not sending.delay
    born = closed[0].at if closed and committed else FOREVER
    runs = story.runs_of(group)
    done = [run.end for run in runs if run.outcome == "done"]
    done += [letter.at - rules.slack_ns for letter in story.dead if letter.group == group]
    seen = story.runs[0].at if story.runs else FOREVER
    first = runs[0].at if runs else FOREVER
    return Turn(story, sending.at, min(born, seen), min(done, default=FOREVER), first, runs)


def _across(history: History, rules: Rules, turns: Sequence[Turn], where: str) -> Iterator[Finding]:
    """Check the pairs by time: A was born before B was sent."""
    by_birth = sorted((turn for turn in turns if turn.born < FOREVER), key=lambda turn: turn.born)
    births = [turn.born for turn in by_birth]
    latest: list[Turn] = []  # The message that was over last, among the messages born so far.
    for turn in by_birth:
        latest.append(turn if not latest or turn.over > latest[-1].over else latest[-1])
    by_sending = sorted(turns, key=lambda turn: turn.sent)
    sendings = [turn.sent for turn in by_sending]
    earliest: list[Turn] = []  # The message that started first, among the messages sent from here on.
    for turn in reversed(by_sending):
        earliest.append(turn if not earliest or turn.first < earliest[-1].first else earliest[-1])
    earliest.reverse()
    for b in turns:
        place = bisect_left(births, b.sent)
        if place:
            yield from _too_early(latest[place - 1], b, where)
    for a in by_birth:
        place = bisect_right(sendings, a.born)
        if place < len(earliest):
            yield from _too_late(history, rules, a, earliest[place], where)


def _inside(history: History, rules: Rules, turns: Sequence[Turn], where: str) -> Iterator[Finding]:
    """Check the pairs by transaction: one transaction sent A before B."""
    together: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        together[turn.story.sendings[0].sent.transaction].append(turn)
    for ones in together.values():
        latest: Turn | None = None
        for b in ones:
            if latest:
                yield from _too_early(latest, b, where)
            if not _scheduled(b) and (not latest or b.over > latest.over):
                latest = b
        earliest = ones[-1]
        for a in reversed(ones[:-1]):
            if not _scheduled(a):
                yield from _too_late(history, rules, a, earliest, where)
            earliest = a if a.first < earliest.first else earliest


def _scheduled(turn: Turn) -> bool:
    return turn.story.sendings[0].sent.delay > 0


def _too_early(a: Turn, b: Turn, where: str) -> Iterator[Finding]:
    if b.first < a.over:
        text = f"started before {a.story.message} {where} was over, which was published before it"
        yield Finding(b.story.message, text, (a.story, b.story))


def _too_late(history: History, rules: Rules, a: Turn, b: Turn, where: str) -> Iterator[Finding]:
    if any(run.at > b.first and not started_late(history.world, run, rules) for run in a.runs):
        text = f"started after {b.story.message} {where} had started, which was published after it"
        yield Finding(a.story.message, text, (a.story, b.story))
