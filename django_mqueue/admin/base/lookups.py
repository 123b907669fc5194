"""Lookups that narrow a list: whole values by index, instead of a search for parts of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NUMBERS = range(0, 1 << 63)


@dataclass(frozen=True)
class Lookup:
    """One field of the lookup form.

    ``name``: the query parameter, which is also the ORM's lookup. ``needs``: other lookups that must also be given,
    because no index serves this one without them.
    """

    name: str
    label: str
    needs: tuple[str, ...] = ()
    number: bool = False


@dataclass(frozen=True)
class Chosen:
    """``given``: the lookups that are applied. ``problems``: the lookups that were left out, with the reasons."""

    given: dict[str, str]
    problems: list[str]


GROUP = Lookup("consumer_group", "Group")
TOPIC_OF_GROUP = Lookup("topic", "Topic", needs=("consumer_group",))
KEY = Lookup("partition_key", "Key", needs=("topic",))


def choose(lookups: Sequence[Lookup], parameters: Mapping[str, str]) -> Chosen:
    """Select the lookups from the query's parameters. Empty fields are ignored."""
    labels = {lookup.name: lookup.label for lookup in lookups}
    given = {lookup.name: parameters[lookup.name] for lookup in lookups if parameters.get(lookup.name)}
    problems: dict[str, str] = {}
    before = -1
    while len(problems) != before:  # Leaving out one lookup may invalidate another.
        before = len(problems)
        for lookup in (each for each in lookups if each.name in given):
            missing = [labels[name] for name in lookup.needs if name not in given]
            if missing:
                problems[lookup.name] = f"it also needs {' and '.join(missing)}"
            elif lookup.number and not _is_number(given[lookup.name]):
                problems[lookup.name] = "it must be a number"
        for name in problems:
            given.pop(name, None)
    return Chosen(given, [f"{labels[name]} was left out: {problem}." for name, problem in problems.items()])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) in _NUMBERS
