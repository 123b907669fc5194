"""The suffixes of dead-letter topics, from an option or the setting ``DLQ_SUFFIX``. They may differ by topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from .. import conf
from .connecting import ConnectionParameters, connecting, has_settings
from .errors import OptionError

OPTION = "deadLetterSuffix"
DEFAULT = str(conf.OPTIONS["DLQ_SUFFIX"].default)
COMMON = ""
"""In a JSON of suffixes by topic, the key that stands for all other topics."""

_EXAMPLE = f'{{"orders": "_dead", "{COMMON}": "{DEFAULT}"}}, with "{COMMON}" for all others'


@dataclass(frozen=True)
class Suffixes:
    """Suffixes of dead-letter topics. ``own``: by topic. ``common``: for all topics that are not in ``own``."""

    common: str = DEFAULT
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> tuple[str, ...]:
        """Return all suffixes. Publishing to a topic that ends in one of them is not allowed."""
        return tuple(sorted({self.common, *self.own.values()}))

    def dead_letter_topic(self, topic: str) -> str:
        """Return the dead-letter topic of a topic."""
        return topic + self.own.get(topic, self.common)

    def original(self, dead_letter_topic: str) -> str | None:
        """Return the topic to which this dead-letter topic belongs; None if this is no dead-letter topic."""
        for suffix in self.all:
            topic = dead_letter_topic.removesuffix(suffix)
            if topic and self.dead_letter_topic(topic) == dead_letter_topic:
                return topic
        return None

    def option(self) -> str:
        """Return the text of the option."""
        if not self.own and not self.common.startswith("{"):
            return self.common
        return json.dumps({COMMON: self.common, **self.own})


BY_DEFAULT = Suffixes()


def suffixes_of(options: Mapping[str, str], parameters: ConnectionParameters) -> Suffixes:
    """Return the suffixes of the option, else of Django's settings if these name the database, else the default.

    Option names are case-insensitive. Raises ``OptionError``.
    """
    text = next((value for name, value in options.items() if name.lower() == OPTION.lower()), None)
    if text is not None:
        return _parsed(text)
    if parameters.by_django and has_settings():
        return suffixes_of_settings()
    return BY_DEFAULT


def with_suffixes(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the suffixes, for processes that may have other settings. Raises ``OptionError``."""
    rest = {name: value for name, value in options.items() if name.lower() != OPTION.lower()}
    return {**rest, OPTION: suffixes_of(options, connecting(options)).option()}


def suffixes_of_settings() -> Suffixes:
    common = str(conf.get("DLQ_SUFFIX"))
    of_topics = {topic: str(conf.get("DLQ_SUFFIX", topic)) for topic in conf.topics()}
    return Suffixes(common, {topic: suffix for topic, suffix in of_topics.items() if suffix != common})


def _parsed(text: str) -> Suffixes:
    found = {COMMON: text}
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise _bad(text, f"must be JSON such as {_EXAMPLE}: {error}") from None
    for suffix in found.values():
        if not isinstance(suffix, str):
            raise _bad(text, f"must be JSON such as {_EXAMPLE}")
        if problem := conf.suffix_problem(suffix):
            raise _bad(text, problem)
    return Suffixes(found.pop(COMMON, DEFAULT), found)


def _bad(text: str, why: str) -> OptionError:
    return OptionError(f"option {OPTION!r} is {text!r}, but {why}")
