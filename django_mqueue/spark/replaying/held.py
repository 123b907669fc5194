"""What every run that stores messages of a topic anew has: where they come from, and who holds back their deletion."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...service import following
from ..connecting import Line, connecting
from .originals import Originals, hold, look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Held:
    """The messages of ``topic``, in the archive ``source`` and in the log. ``guard``: the group that holds them."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        source: str | os.PathLike[str] | None,
        options: Mapping[str, str],
        guard: str,
    ) -> None:
        self.spark, self.topic, self.source, self.options, self.guard = spark, topic, source, options, guard
        self.how = connecting({name.lower(): value for name, value in options.items()})
        self.line = Line(self.how)

    def look(self, *, live: bool) -> Originals:
        """Where they are now; nothing is changed."""
        return self.line.run(
            lambda using: look(using, self.topic, self.source, self.spark, self.options, live=live)
        )

    def hold(self, fail_on_data_loss: bool) -> Originals:
        """The same of archive and log, which keeps them from now on. Raises ``LogGap``."""
        return self.line.run(
            lambda using: hold(
                using,
                self.topic,
                self.source,
                self.spark,
                self.options,
                group=self.guard,
                gap_is_error=fail_on_data_loss,
            )
        )

    def let_go(self) -> None:
        """They may be deleted."""
        self.line.run(lambda using: following.forget(self.topic, self.guard, using=using))
