"""Check the arguments of replays and backfills, and choose messages: by time, key, kind, or any condition in SQL."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

from ...policy import names
from ...policy.durations import moment_ms
from ...service import registration
from ..archives.locations import check_location
from ..connecting import connecting
from ..database.copied_content import NAME_MAX
from ..reader.conditions import chosen
from ..reader.options import TOPIC_MAX
from ..suffixes import suffixes_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class MessageFilter:
    """The conditions of a replay. A message must meet all of them.

    A row that is not a new message is never chosen: a retry, a redriven message, or a copy of a backfill.
    """

    since: datetime | None = None
    until: datetime | None = None  # Excluded.
    keys: Collection[str] = ()
    kinds: Collection[str] = ()
    where: str | None = None
    targeted: bool = False  # Also messages for ``group`` alone; without ``group``, for any one group.
    group: str = ""

    def check(self) -> None:
        """Raise ``TypeError`` or ``ValueError``, which name the argument, for an invalid condition."""
        for name, at in (("since", self.since), ("until", self.until)):
            if at is not None:
                moment_ms(name, at)
        if self.since and self.until and self.since >= self.until:
            raise ValueError(f"until ({self.until}) must be later than since ({self.since})")
        for name, given in (("keys", self.keys), ("kinds", self.kinds)):
            if isinstance(given, str):
                raise TypeError(f"{name} must be a collection of str, not the one str {given!r}")
        for key in self.keys:
            names.check_name("key", key, names.KEY_MAX)
        if self.where is not None and not self.where.strip():
            raise ValueError("where is empty, but must be an SQL condition")

    @property
    def digest(self) -> int:
        """Return a number of 62 bits that is the same for equal filters."""
        times = [at and at.astimezone(UTC).isoformat() for at in (self.since, self.until)]
        rest = [sorted(self.keys), sorted(self.kinds), self.where, self.targeted, self.group]
        return hash_of(json.dumps(times + rest))

    def of(self, frame: DataFrame) -> DataFrame:
        """Return the chosen messages of a frame, with the column ``value``. Raises ``OptionError``."""
        from pyspark.sql import functions as f

        from ..reader.columns import with_value

        frame = frame.where(f.col("original_id").isNull())
        if self.since is not None:
            frame = frame.where(f.col("published_at") >= f.lit(self.since))
        if self.until is not None:
            frame = frame.where(f.col("published_at") < f.lit(self.until))
        if self.keys:
            frame = frame.where(f.col("key").isin(sorted(self.keys)))
        if self.kinds:
            frame = frame.where(f.col("kind").isin(sorted(self.kinds)))
        if not self.targeted or self.group:
            targets = ["", self.group] if self.targeted else [""]
            frame = frame.where(f.coalesce(f.col("target"), f.lit("")).isin(targets))
        frame = with_value(frame)
        return frame if self.where is None else chosen(frame, self.where)


def hash_of(*texts: str) -> int:
    """Return 62 bits of a digest of the texts."""
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest()) >> 2


def check_replay(
    topic: str,
    name: str,
    message_filter: MessageFilter,
    source: str | os.PathLike[str] | None,
    to: str,
    group: str | None,
    rate: float | None,
    options: Mapping[str, str],
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for an invalid argument of a replay."""
    names.check_topic(topic, TOPIC_MAX)
    names.check_name("name", name, NAME_MAX)
    message_filter.check()
    if source is not None:
        check_location(source)
    _check(to, group, rate, options)


def check_backfill(
    topic: str, group: str, source: str | os.PathLike[str], rate: float | None, options: Mapping[str, str]
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for an invalid argument of a backfill."""
    check_location(source)
    _check(topic, group, rate, options)


def _check(to: str, group: str | None, rate: float | None, options: Mapping[str, str]) -> None:
    parameters = connecting(options)
    names.check_publish_topic(to, suffixes_of(options, parameters).all)
    if group is not None:
        registration.check_group(group)
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"rate must be more than 0 messages a second, and finite, not {rate!r}")
