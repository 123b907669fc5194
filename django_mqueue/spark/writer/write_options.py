"""The options of ``format("mqueue")`` for writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ... import conf
from ...policy import names
from ..connecting import ConnectionParameters
from ..errors import OptionError
from ..reader.options import OptionReader, flag, option, whole
from ..suffixes import Suffixes

WRITE_ID_MAX = 200
ADAPTIVE_STREAMS = "spark.sql.adaptive.streaming.stateless.enabled"
"""A setting of Spark that ``launching.session`` turns off. It could change the ids of a stream's rows."""

_SPARKS = {"checkpointlocation", "queryname"}
"""Options of the query that Spark also passes to the writer."""


def _target(text: str) -> str:
    return text and names.check_name("target", text, names.GROUP_MAX)


def _spread(text: str) -> int:
    if whole(text) > conf.SPREAD_MAX:
        raise ValueError(f"must be at most {conf.SPREAD_MAX}, and equal to the setting SPREAD")
    return whole(text)


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, parsed.

    * ``topic``: the topic of rows that name none.
    * ``target``: the only group that rows are for if they name none; '' for all groups.
    * ``write_id``: the name of a batch write that may run again.
    * ``stable``: the user states that a repeated write has the same rows, digit by digit.
    * ``spread`` and ``max_payload_bytes``: options, or the package's defaults. Django's settings are not read.
    * ``suffixes``: see ``suffixes_of``.
    """

    connecting: ConnectionParameters
    suffixes: Suffixes
    topic: str | None = option("topic", str)
    target: str = option("target", _target, "")
    spread: int = option("spread", _spread, conf.OPTIONS["SPREAD"].default)
    max_payload_bytes: int = option("maxPayloadBytes", whole, conf.OPTIONS["MAX_PAYLOAD_BYTES"].default)
    write_id: str | None = option("writeId", partial(names.check_name, "writeId", limit=WRITE_ID_MAX))
    stable: bool = option("stableContent", flag, False)


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the parsed options. Raises ``OptionError``."""
    own = {name: value for name, value in options.items() if name.lower() not in _SPARKS}
    given = OptionReader(own, WriteOptions)
    found = WriteOptions(given.connecting, given.suffixes, **given.field_values())
    if found.topic is not None:
        given.value("topic", partial(names.check_publish_topic, dlq_suffixes=found.suffixes.all))
    if streaming and found.write_id is not None:
        raise given.bad(
            "writeId", "a streaming query has an id of its own, kept in its checkpoint: leave it out"
        )
    return found


def check_mode(overwrite: bool) -> None:
    """Raise ``OptionError`` for a mode other than append: a log cannot be overwritten."""
    if overwrite:
        raise OptionError(
            'the mode overwrites (mode("overwrite") of a batch, outputMode("complete") of a stream), but messages'
            ' can only be appended: use mode("append") or outputMode("append")'
        )
