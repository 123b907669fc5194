"""The arguments of archive operations, checked before Spark starts, and the options with which a run reads the log."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...policy import names
from ..connecting import CONNECTION_OPTIONS
from ..errors import OptionError
from ..reader.options import ROWS_PER_PARTITION, TOPIC_MAX, ReadOptions, Table, read_options
from ..suffixes import OPTION

TABLES: tuple[Table, ...] = ("dead_letters", "deliveries", "messages")
"""The tables of an archive, in the order in which a batch is committed and a report reads them.

In this order, a message that is deleted while a report reads is never counted as unfinished.
"""

BATCH_ROWS = 1_000_000
ROWS_MIN = 10_000
"""A batch is divided among the cores, but only into ranges of at least half as many rows."""
HISTORY_AFTER = 3600.0
"""Seconds after which a message's delivery history is archived even if a group is not done with the message."""

KEEP_HOURS = 24.0
"""Hours before files that no table names are deleted: a reader may still use them, or a run may soon commit them."""

Progress = Callable[[int, int], object]
"""Called with (done, total): offsets in an archive run, ranges in an export, otherwise files."""


def quiet(done: int, total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class ArchiveRequest:
    """The checked arguments of an archive run. ``history_age_ms``: ``history_after`` in milliseconds."""

    options: ReadOptions
    group: str
    batch_rows: int
    history_age_ms: int
    moved: bool = False

    def tables(self, cores: int) -> dict[Table, ReadOptions]:
        """Return the options to read each table. ``cores``: tasks that run at once; all tasks get about equal work."""
        rounds = math.ceil(self.batch_rows / (ROWS_PER_PARTITION * cores))
        each = math.ceil(self.batch_rows / (rounds * cores))
        options = replace(
            self.options,
            max_records_per_partition=each,
            min_partitions=cores,
            least_records=min(each, ROWS_MIN),
        )
        return {
            "messages": replace(options, targeted=True),
            "dead_letters": replace(options, table="dead_letters"),
            "deliveries": replace(options, table="deliveries"),
        }


def archive_request(
    options: Mapping[str, str],
    topics: str | Sequence[str] | None,
    pattern: str | None,
    group: str,
    batch_rows: int,
    history_after: float,
    *,
    strict: bool,
    moved: bool = False,
) -> ArchiveRequest:
    """Check the arguments of an archive run, and return them. Raises ``OptionError``."""
    try:
        names.check_name("group", group, names.GROUP_MAX)
    except (TypeError, ValueError) as error:
        raise OptionError(str(error)) from None
    if batch_rows < 1:
        raise OptionError(f"batch_rows is {batch_rows}, but must be at least 1")
    if not 0 <= history_after <= 10 * 365 * 86_400:
        raise OptionError(f"history_after is {history_after}, but must be seconds, from 0 to ten years")
    known = {name.lower() for name in CONNECTION_OPTIONS | {OPTION, "password"}}
    for name in options:
        if name.lower() not in known:
            raise OptionError(
                f"option {name!r}: an archive run accepts only connection options and {OPTION}: leave it out"
            )
    if (topics is None) == (pattern is None):
        raise OptionError("give either topics or pattern")
    every = ".*" if pattern is None else pattern
    found = read_options({**options, "includeHeaders": "true", "subscribePattern": every})
    found = replace(found, fail_on_data_loss=strict)
    if topics is not None:
        found = replace(found, pattern=None, topics=check_topics(topics))
    return ArchiveRequest(found, group, batch_rows, int(history_after * 1000), moved)


def check_topics(topics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the different topics, sorted. Raises ``OptionError``."""
    given = (topics,) if isinstance(topics, str) else tuple(topics)
    for topic in given:
        try:
            names.check_topic(topic, TOPIC_MAX)
        except (TypeError, ValueError) as error:
            raise OptionError(f"{topic!r} cannot be a topic: {error}") from None
    if not given:
        raise OptionError("topics is empty: name at least one topic, or give a pattern")
    return tuple(sorted(set(given)))


def check_clean(clean: bool, topics: str | Sequence[str] | None) -> None:
    """Raise ``OptionError`` if ``topics`` is given with ``clean``, which deletes files of all topics."""
    if clean and topics is not None:
        raise OptionError(f"clean deletes files of all topics: leave out topics, which is {topics!r}")


def check_keep(hours: float) -> None:
    """Raise ``OptionError`` unless ``hours`` is from 0 to 87,600 (ten years)."""
    if not 0 <= hours <= 24 * 3650:
        raise OptionError(f"keep_hours is {hours}, but must be from 0 to {24 * 3650}")
