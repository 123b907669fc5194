"""The ``MQUEUE`` setting. It is read at each use, so that ``override_settings`` works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from .policy.names import ACTIONS_TOPIC, DLQ_SUFFIX_MAX, OPERATIONS_TOPIC, RESERVED_SUFFIXES


@dataclass(frozen=True)
class Option:
    """The default and the valid values of a setting. ``low``: the minimum. ``unit``: for error messages."""

    default: Any
    kind: type | tuple[type, ...]
    low: float | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    is_function: bool = False
    """The value is None, a callable, or the dotted path of a callable."""

    def problem(self, value: Any) -> str | None:
        if self.is_function:
            fits = value is None or callable(value) or (isinstance(value, str) and "." in value)
            return None if fits else f"must be a callable, or the dotted path of one, not {value!r}"
        if (isinstance(value, bool) and self.kind is not bool) or not isinstance(value, self.kind):
            kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
            return f"must be {' or '.join(k.__name__ for k in kinds)}, not {value!r}"
        if self.choices and value not in self.choices:
            return f"must be {' or '.join(map(repr, self.choices))}, not {value!r}"
        if self.low is not None and isinstance(value, (int, float)) and not self.low <= value < float("inf"):
            return f"must be a finite number, at least {self.low} {self.unit}".rstrip() + f", not {value!r}"
        return None


_NUMBER = (int, float)
OPTIONS: dict[str, Option] = {
    "DATABASE": Option("default", str),
    "POLL_INTERVAL": Option(0.1, _NUMBER, 0.001, "seconds"),
    "IDLE_POLL_INTERVAL": Option(1, _NUMBER, 0.001, "seconds"),
    "WAKE_WORKERS": Option("everywhere", str, choices=("everywhere", "host", "never")),
    "DISCOVERY_INTERVAL": Option(1, _NUMBER, 0.01, "seconds"),
    "LEASE_DURATION": Option(30, _NUMBER, 0.1, "seconds"),
    "LEASE_RENEWAL_INTERVAL": Option(10, _NUMBER, 0.01, "seconds"),
    "RETENTION": Option(3600, _NUMBER, 0, "seconds"),
    "GC_INTERVAL": Option(10, _NUMBER, 0.01, "seconds"),
    "LATE_AFTER": Option(600, _NUMBER, 0, "seconds"),
    "SPREAD": Option(16, int, 1),
    "DLQ_SUFFIX": Option("_dlq", str),
    "MAX_PAYLOAD_BYTES": Option(1_048_576, int, 1, "bytes"),
    "MASK": Option(None, object, is_function=True),
    "REQUIRE_TRANSACTION": Option(False, bool),
}
GENERAL = ("DATABASE", "WAKE_WORKERS")
"""Settings that are the same for all topics."""
SPREAD_MAX = 4096
declared: dict[str, dict[str, Any]] = {}
"""Settings of topics that ``Topic`` has declared. Those in ``TOPICS`` take precedence."""
WRONG_TOPICS = "MQUEUE['TOPICS'] must map topics to dictionaries of settings"


def _configured() -> Mapping[str, Any]:
    configured = getattr(settings, "MQUEUE", {})
    if not isinstance(configured, Mapping):
        raise ImproperlyConfigured("MQUEUE must be a dictionary")
    return configured


def get(name: str, topic: str | None = None) -> Any:
    """Return the value of a setting. With ``topic``, a value for this topic in ``TOPICS`` takes precedence.

    Raises ``KeyError`` for an unknown name, and ``ImproperlyConfigured`` for an invalid value.
    """
    configured = _configured()
    value = configured.get(name, OPTIONS[name].default)
    section: Any = {}
    if topic is not None and name not in GENERAL:
        topics = configured.get("TOPICS", {})
        section = topics.get(topic, {}) if isinstance(topics, Mapping) else None
        if not isinstance(section, Mapping):
            raise ImproperlyConfigured(WRONG_TOPICS)
        value = section.get(name, declared.get(topic, {}).get(name, value))
    if value is not OPTIONS[name].default and (problem := _problem(name, value)):
        where = f"['TOPICS'][{topic!r}]" if name in section else ""
        raise ImproperlyConfigured(f"MQUEUE{where}[{name!r}] {problem}")
    return value


def _problem(name: str, value: Any) -> str | None:
    """Return the problem of one value, without regard to other settings; None if it is valid."""
    if problem := OPTIONS[name].problem(value):
        return problem
    if name == "SPREAD" and value > SPREAD_MAX:
        return f"must be at most {SPREAD_MAX}, not {value!r}"
    return suffix_problem(value) if name == "DLQ_SUFFIX" else None


def database(using: str | None = None) -> str:
    """Return the alias of the queue's database: ``using`` if given, else the setting ``DATABASE``."""
    return using if using is not None else str(get("DATABASE"))


def retention_ms(topic: str) -> int:
    return int(get("RETENTION", topic) * 1000)


def lease_ms(topic: str) -> int:
    return int(get("LEASE_DURATION", topic) * 1000)


def largest_payload() -> int:
    """Return the largest ``MAX_PAYLOAD_BYTES`` of all topics, in bytes."""
    return max(int(get("MAX_PAYLOAD_BYTES", topic)) for topic in (None, *topics()))


def dead_letter_topic(topic: str) -> str:
    """Return the dead-letter topic of ``topic``. A dead-letter topic gets a second suffix."""
    return topic + str(get("DLQ_SUFFIX", topic))


def dead_letter_suffixes() -> tuple[str, ...]:
    """Return all suffixes of dead-letter topics: the default, and the suffixes set in ``TOPICS``."""
    try:  # Each publish calls this, so ``get`` is not called for each topic.
        own = [topic for topic, section in topics().items() if "DLQ_SUFFIX" in section]
    except TypeError as error:
        raise ImproperlyConfigured(WRONG_TOPICS) from error
    return tuple({str(get("DLQ_SUFFIX", topic)) for topic in (None, *own)})


def original_topic(topic: str) -> str:
    """Return the topic without the suffixes of scheduled messages, replies and dead letters."""
    derived = (*RESERVED_SUFFIXES, *dead_letter_suffixes())
    while ending := next((end for end in derived if topic.endswith(end) and topic != end), ""):
        topic = topic.removesuffix(ending)
    return topic


def is_derived(topic: str) -> bool:
    """Return whether a topic holds scheduled messages, replies, dead letters or records of the queue itself."""
    return original_topic(topic) != topic or topic in (ACTIONS_TOPIC, OPERATIONS_TOPIC)


def mask(topic: str) -> Callable[[Any], Any] | None:
    """Return the function that hides parts of a topic's messages from users without permission; None if there is none.

    Derived topics use the ``MASK`` of the original topic. A dotted path is imported. Raises ``ImproperlyConfigured`` if
    the import fails or the result is not callable.
    """
    original = original_topic(topic)
    value = get("MASK", original)
    if problem := _mask_problem(value):
        raise ImproperlyConfigured(f"the MASK of topic {original!r} in the setting MQUEUE {problem}")
    found: Callable[[Any], Any] | None = import_string(value) if isinstance(value, str) else value
    return found


repeats: dict[str, str] = {}
"""For topics whose messages repeat data of another topic: that topic."""


def is_masked(topic: str) -> bool:
    """Return whether a topic, or the topic that it repeats, has a mask. True if a mask is invalid."""
    seen = set[str]()
    one: str | None = topic
    try:
        while one is not None and (one := original_topic(one)) not in seen:
            if mask(one) is not None:
                return True
            seen.add(one)
            one = repeats.get(one)
    except Exception:  # The import of a mask may raise anything.
        return True
    return False


def topics() -> Mapping[str, Any]:
    """Return ``TOPICS``: settings by topic."""
    found = _configured().get("TOPICS", {})
    if not isinstance(found, Mapping):
        raise ImproperlyConfigured(WRONG_TOPICS)
    return found


def _mask_problem(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        found = import_string(value)
    except Exception as error:  # A module of the project may raise anything.
        return f"cannot be imported: {value!r}: {type(error).__name__}: {error}"
    return None if callable(found) else f"must be callable: {value!r} is not"


def problems() -> list[str]:
    """Return the problems of the ``MQUEUE`` setting, one text each; empty if it is valid."""
    configured = getattr(settings, "MQUEUE", {})
    if not isinstance(configured, Mapping):
        return ["MQUEUE must be a dictionary"]
    found = _section_problems(
        "MQUEUE", {k: v for k, v in configured.items() if k != "TOPICS"}, [*OPTIONS, "TOPICS"]
    )
    topics = configured.get("TOPICS", {})
    if not isinstance(topics, Mapping):
        return [*found, WRONG_TOPICS]
    for topic, section in topics.items():
        where = f"MQUEUE['TOPICS'][{topic!r}]"
        if not isinstance(topic, str) or not isinstance(section, Mapping):
            found.append(f"{where} must be a dictionary, and its key a str")
        else:
            found += _section_problems(where, section, [name for name in OPTIONS if name not in GENERAL])
            found += _relations(where, {**configured, **section})
    return found + _relations("MQUEUE", configured)


def _section_problems(where: str, section: Mapping[str, Any], allowed: list[str]) -> list[str]:
    found = []
    for name, value in section.items():
        if name not in allowed:
            found.append(f"{where}: unknown setting {name!r}; known are {', '.join(allowed)}")
        elif problem := _problem(name, value) or (_mask_problem(value) if name == "MASK" else None):
            found.append(f"{where}[{name!r}] {problem}")
        elif name == "DATABASE" and value not in settings.DATABASES:
            found.append(f"{where}['DATABASE'] names no entry of DATABASES: {value!r}")
    return found


def suffix_problem(value: str) -> str | None:
    """Return the problem of a ``DLQ_SUFFIX``; None if it is valid."""
    fits = 0 < len(value) <= DLQ_SUFFIX_MAX and value.isprintable() and " " not in value
    if fits and not value.endswith(tuple(RESERVED_SUFFIXES)):
        return None
    return (
        f"must be 1 to {DLQ_SUFFIX_MAX} printable characters without blanks, and not end in "
        f"{' or '.join(RESERVED_SUFFIXES)}: not {value!r}"
    )


def _relations(where: str, section: Mapping[str, Any]) -> list[str]:
    """Return problems between settings.

    ``LEASE_DURATION`` must be longer than the heartbeat interval (``DISCOVERY_INTERVAL``), and at least twice the
    renewal interval.
    """
    together = ("LEASE_DURATION", "LEASE_RENEWAL_INTERVAL", "DISCOVERY_INTERVAL")
    values = {name: section.get(name, OPTIONS[name].default) for name in together}
    if any(OPTIONS[name].problem(value) for name, value in values.items()):
        return []
    lease, renewal, discovery = values.values()
    found = []
    if discovery >= lease:
        found.append(
            f"{where}: DISCOVERY_INTERVAL ({discovery}) must be below LEASE_DURATION ({lease}), or healthy workers"
            " count as dead between two heartbeats"
        )
    if renewal * 2 > lease:
        found.append(
            f"{where}: LEASE_RENEWAL_INTERVAL ({renewal}) must be at most half of LEASE_DURATION ({lease}), or healthy"
            " workers lose their leases"
        )
    return found
