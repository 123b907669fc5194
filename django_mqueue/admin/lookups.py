"""What a list can be narrowed to: whole values by index, instead of a search for parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NUMBERS = range(0, 1 << 63)


@dataclass(frozen=True)
class Lookup:
    """One field of the form. ``name`` is the query parameter and the ORM's lookup; ``needs`` names those
    without which no index serves it."""

    name: str
    label: str
    needs: tuple[str, ...] = ()
    number: bool = False


@dataclass(frozen=True)
class Chosen:
    """``given`` is what can be looked up, ``problems`` says what was left out and why."""

    given: dict[str, str]
    problems: list[str]


GROUP = Lookup("consumer_group", "Group")
TOPIC_OF_GROUP = Lookup("topic", "Topic", needs=("consumer_group",))
KEY = Lookup("partition_key", "Key", needs=("topic",))


def choose(lookups: Sequence[Lookup], parameters: Mapping[str, str]) -> Chosen:
    """Take from the query's parameters what the form's fields say; empty fields say nothing."""
    labels = {lookup.name: lookup.label for lookup in lookups}
    given = {lookup.name: parameters[lookup.name] for lookup in lookups if parameters.get(lookup.name)}
    problems: dict[str, str] = {}
    before = -1
    while len(problems) != before:  # What was left out may be what another needs.
        before = len(problems)
        for lookup in (each for each in lookups if each.name in given):
            missing = [labels[name] for name in lookup.needs if name not in given]
            if missing:
                problems[lookup.name] = f"it needs {' and '.join(missing)} beside it"
            elif lookup.number and not _is_number(given[lookup.name]):
                problems[lookup.name] = "it must be a number"
        for name in problems:
            given.pop(name, None)
    return Chosen(given, [f"{labels[name]} was left out: {problem}." for name, problem in problems.items()])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) in _NUMBERS
