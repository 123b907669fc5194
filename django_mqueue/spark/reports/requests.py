"""The request for a report, checked before anything is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ...policy.durations import moment_ms
from ..archives.locations import check_as_of, check_location
from ..archives.requests import check_topics
from ..errors import OptionError
from ..suffixes import with_suffixes

STEPS = {"hour": 3_600_000, "day": 86_400_000}
"""The length of each kind of step in milliseconds."""

TOP_MAX = 1_000


@dataclass(frozen=True)
class ReportRequest:
    """The checked arguments of ``report``. ``since`` and ``until`` are epoch milliseconds."""

    topics: tuple[str, ...]
    pattern: str | None
    archive: str | None
    live: bool
    since: int | None
    until: int | None
    by: str
    top: int
    options: Mapping[str, str]
    strict: bool
    as_of: int | datetime | None

    @property
    def step(self) -> int:
        return STEPS[self.by]

    def matches(self, topic: str) -> bool:
        return topic in self.topics if self.pattern is None else bool(re.fullmatch(self.pattern, topic))


def report_request(
    topics: str | Iterable[str] | None, pattern: str | None, archive: str | os.PathLike[str] | None, live: bool,
    since: datetime | None, until: datetime | None, by: str, top: int, options: Mapping[str, str] | None,
    strict: bool = True, as_of: int | datetime | None = None,
) -> ReportRequest:  # fmt: skip
    """Return the request. Raises ``OptionError``, which names the invalid argument."""
    if (topics is None) == (pattern is None):
        raise OptionError("exactly one of topics and pattern must be given")
    checked = () if topics is None else check_topics(topics)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"pattern {pattern!r} is not a Python regular expression: {error}") from None
    if not live and archive is None:
        raise OptionError("there is nothing to read: give an archive, or read the live log")
    check_as_of(as_of, archive, live=live)
    begin, end = _moment("since", since), _moment("until", until)
    if begin is not None and end is not None and begin >= end:
        raise OptionError(f"since ({since}) must be before until ({until})")
    if by not in STEPS:
        raise OptionError(f"by must be {' or '.join(STEPS)}, not {by!r}")
    if not isinstance(top, int) or isinstance(top, bool) or not 1 <= top <= TOP_MAX:
        raise OptionError(f"top must be a whole number from 1 to {TOP_MAX}, not {top!r}")
    location = None if archive is None else check_location(archive)
    reading = with_suffixes(options or {}) if live else {}
    return ReportRequest(checked, pattern, location, live, begin, end, by, top, reading, strict, as_of)


def _moment(name: str, value: datetime | None) -> int | None:
    if value is None:
        return None
    try:
        return moment_ms(name, value)
    except (TypeError, ValueError) as error:
        raise OptionError(str(error)) from None
