"""The options of ``format("mqueue")`` for writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ... import conf
from ...policy import names
from ..connecting import CONNECTION_OPTIONS, ConnectionParameters, connecting
from ..errors import OptionError
from ..reader.options import OptionReader
from ..suffixes import OPTION, Suffixes, suffixes_of

_KNOWN = {
    "topic",
    "target",
    "spread",
    "maxPayloadBytes",
    OPTION,
    "writeId",
    "stableContent",
} | CONNECTION_OPTIONS
WRITE_ID_MAX = 200
ADAPTIVE_STREAMS = "spark.sql.adaptive.streaming.stateless.enabled"
"""A setting of Spark that our sessions turn off. It could change the ids of a stream's rows (see ``rows``)."""

_SPARKS = {"checkpointlocation", "queryname"}
"""Options of the query that Spark also passes to the writer."""


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, parsed.

    * ``topic``: the topic of rows that name none.
    * ``target``: the only group that rows are for if they name none; '' for all groups.
    * ``write_id``: the name of a batch that may run again.
    * ``stable``: whether the rows are then the same, digit by digit.
    * ``spread``, ``max_payload_bytes`` and ``suffixes``: settings, which executors may not have.
    """

    connecting: ConnectionParameters
    topic: str | None
    spread: int
    max_payload_bytes: int
    suffixes: Suffixes
    write_id: str | None
    target: str = ""
    stable: bool = False


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the parsed options. Raises ``OptionError``."""
    given = OptionReader(options)
    given.refuse_unknown(_KNOWN, {name: given.values[name] for name in given.values.keys() - _SPARKS})
    how = connecting(given.values)
    suffixes = suffixes_of(given.values, how)
    topic, write_id = given.text("topic"), given.text("writeId")
    if topic is not None:
        given.checked("topic", topic, lambda name: names.check_publish_topic(name, suffixes.all))
    if write_id is not None:
        if streaming:
            raise given.bad(
                "writeId", "a streaming query has an id of its own, kept in its checkpoint: leave it out"
            )
        given.checked("writeId", write_id, lambda name: names.check_name("writeId", name, WRITE_ID_MAX))
    target = given.text("target") or ""
    if target:
        given.checked("target", target, lambda name: names.check_name("target", name, names.GROUP_MAX))
    spread = given.whole("spread", int(conf.OPTIONS["SPREAD"].default))
    if spread is None or spread > conf.SPREAD_MAX:
        raise given.bad("spread", f"must be at most {conf.SPREAD_MAX}, and equal to the setting SPREAD")
    largest = given.whole("maxPayloadBytes", int(conf.OPTIONS["MAX_PAYLOAD_BYTES"].default))
    assert largest is not None
    stable = given.flag("stableContent", False)
    return WriteOptions(how, topic, spread, largest, suffixes, write_id, target, stable)


def check_mode(overwrite: bool) -> None:
    """Raise ``OptionError`` for a mode other than append: a log cannot be overwritten."""
    if overwrite:
        raise OptionError(
            'the mode overwrites (mode("overwrite") of a batch, outputMode("complete") of a stream), but messages'
            ' can only be appended: use mode("append") or outputMode("append")'
        )
