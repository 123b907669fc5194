"""The common part of replays and backfills: the messages that they read, and the group that holds back deletion."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from ..connecting import RetryingConnection, connecting
from ..database import following
from .originals import Originals, hold, look, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GuardedSource:
    """The messages of ``topic`` in the archive ``source`` and in the log.

    ``guard``: the group that holds back deletion.
    """

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        source: str | os.PathLike[str] | None,
        options: Mapping[str, str],
        guard: str,
        as_of: int | datetime | None = None,
    ) -> None:
        self.spark, self.topic, self.source, self.options, self.guard = spark, topic, source, options, guard
        self.as_of = as_of
        self.how = connecting({name.lower(): value for name, value in options.items()})
        self.line = RetryingConnection(self.how)

    @cached_property
    def archive_id(self) -> str:
        """Return an identity of the archive and its state, which stays the same when the archive is moved.

        Raises ``NoArchive``.
        """
        archive = opened(self.source, self.as_of)
        if archive is None:
            return "none"
        return archive.id if self.as_of is None else f"{archive.id} as of {self.as_of}"

    def look(self, *, live: bool) -> Originals:
        """Return where the messages are now. This changes nothing."""
        return self.line.run(
            lambda using: look(using, self.topic, self.source, self.options, live=live, as_of=self.as_of)
        )

    def hold(self, fail_on_data_loss: bool, *, begun: bool) -> Originals:
        """Return where the messages are, and hold back their deletion from now on. Raises ``LogGap``.

        ``begun``: whether an earlier run has noted that it did this.
        """
        return self.line.run(
            lambda using: hold(
                using,
                self.topic,
                self.source,
                self.options,
                group=self.guard,
                begun=begun,
                gap_is_error=fail_on_data_loss,
            )
        )

    def let_go(self) -> None:
        """Unsubscribe the group, so that the messages may be deleted."""
        self.line.run(lambda using: following.forget(self.topic, self.guard, using=using))


def hash_of(*texts: str) -> int:
    """Return 62 bits of a digest."""
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest()) >> 2
