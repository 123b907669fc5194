"""Check the arguments of a replay or a backfill, before Spark starts or anything is read."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...policy import names
from ...service import registration
from ..archives.places import check_place
from ..connecting import connecting
from ..database.copied_content import NAME_MAX
from ..reader.options import TOPIC_MAX
from ..suffixes import suffixes_of
from .choice import MessageFilter


def check_replay(
    topic: str,
    name: str,
    choice: MessageFilter,
    source: str | os.PathLike[str] | None,
    to: str,
    group: str | None,
    rate: float | None,
    options: Mapping[str, str],
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for an invalid argument."""
    names.check_topic(topic, TOPIC_MAX)
    names.check_name("name", name, NAME_MAX)
    choice.check()
    if source is not None:
        check_place(source)
    _check(to, group, rate, options)


def check_backfill(
    topic: str, group: str, source: str | os.PathLike[str], rate: float | None, options: Mapping[str, str]
) -> None:
    """Raise ``TypeError`` or ``ValueError`` for an invalid argument."""
    check_place(source)
    _check(topic, group, rate, options)


def _check(to: str, group: str | None, rate: float | None, options: Mapping[str, str]) -> None:
    how = connecting({name.lower(): value for name, value in options.items()})
    names.check_publish_topic(to, suffixes_of(options, how).all)
    if group is not None:
        registration.check_group(group)
    if rate is not None and not rate > 0:
        raise ValueError(f"rate must be more than 0 messages a second, not {rate!r}")
