"""The options of ``format("mqueue")``. Names are case-insensitive, as in Spark.

Options that Spark's Kafka source also has keep their names. An invalid option raises ``OptionError`` at
once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, get_args

from ...policy import names
from ..connecting import CONNECTION_OPTIONS, ConnectionParameters, connecting
from ..errors import OptionError
from ..suffixes import BY_DEFAULT, OPTION, Suffixes, suffixes_of

Table = Literal["messages", "dead_letters", "deliveries"]
EARLIEST, LATEST = -2, -1
"""Values in a JSON of offsets, as in Spark's Kafka source."""

ROWS_PER_PARTITION = 200_000
TOPIC_MAX = 128

Parser = Callable[[str], Any]
"""Parses the text of an option. Raises ``ValueError`` with the rule that the text breaks."""


def option(name: str, parse: Parser, default: Any = None) -> Any:
    """Return the dataclass field for the option ``name``."""
    return field(default=default, metadata={"name": name, "parse": parse})


class OptionReader:
    """The options as the user gave them. Raises ``OptionError`` for an unknown option, and for a password.

    ``kind``: the dataclass whose fields are the known options. ``others``: further known options.
    """

    def __init__(self, options: Mapping[str, str], kind: type, others: Sequence[str] = ()) -> None:
        self.values = {name.lower(): str(value) for name, value in options.items()}
        self._fields = {found.name: found.metadata for found in fields(kind) if found.metadata}
        known = {each["name"] for each in self._fields.values()} | {*others, OPTION} | CONNECTION_OPTIONS
        small = {name.lower() for name in known}
        for name in self.values:
            if name == "password":
                raise OptionError(
                    "option 'password' is refused, because Spark keeps options in plans and logs. Give the password"
                    " to the executors in the environment (MQUEUE_PASSWORD), 'passwordFile', 'defaultsFile' or"
                    " 'connectionHook'"
                )
            if name not in small:
                raise OptionError(
                    f"option {name!r} does not exist; known options are {', '.join(sorted(known))}"
                )
        self.connecting = connecting(self.values)
        self.suffixes = suffixes_of(self.values, self.connecting)

    def has(self, name: str) -> bool:
        return name.lower() in self.values

    def value(self, name: str, parse: Parser) -> Any:
        """Return the parsed value of an option that is given. Raises ``OptionError``."""
        try:
            return parse(self.values[name.lower()])
        except ValueError as error:
            raise self.bad(name, str(error)) from None

    def field_values(self) -> dict[str, Any]:
        """Return the parsed options by the names of their fields. Raises ``OptionError``."""
        return {
            name: self.value(each["name"], each["parse"])
            for name, each in self._fields.items()
            if self.has(each["name"])
        }

    def bad(self, name: str, why: str) -> OptionError:
        return OptionError(f"option {name!r} is {self.values.get(name.lower())!r}, but {why}")


def whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise ValueError("must be a whole number, at least 1")
    return int(text)


def flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.strip().lower() == "true"


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text.strip()) or not 0 < float(text) <= 3600:
        raise ValueError("must be seconds, more than 0 and at most 3600")
    return float(text)


def _several(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _table(text: str) -> str:
    if text not in get_args(Table):
        raise ValueError("must be messages, dead_letters or deliveries")
    return text


def _topic(text: str) -> tuple[str, ...]:
    return (names.check_topic(text, TOPIC_MAX),)


def _topics(text: str) -> tuple[str, ...]:
    return tuple(sorted({names.check_topic(topic, TOPIC_MAX) for topic in _several(text) or [""]}))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a Python regular expression: {error}") from None
    return text


@dataclass(frozen=True)
class Bound:
    """The start or the end of a read: earliest, latest, a moment (epoch milliseconds), or offsets by topic.

    As a start, an offset is the first that is read. As an end, it is the first that is not read.
    """

    where: Literal["earliest", "latest", "moment", "offsets"]
    moment: int = 0
    offset: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)

    def of(self, topic: str) -> int | None:
        """Return the given offset of a topic, or ``EARLIEST`` or ``LATEST``; None if none was given."""
        return self.offsets.get(topic, self.offset)


def _moment(text: str) -> Bound:
    if not re.fullmatch(r"[0-9]{1,15}", text.strip()):
        raise ValueError("must be milliseconds since 1970 in UTC, as a whole number")
    return Bound("moment", moment=int(text))


def _offsets(text: str, lowest: int) -> Bound:
    """Parse a bound. ``lowest``: the lowest value in a JSON: ``EARLIEST`` for a start, ``LATEST`` for an end."""
    word = text.strip().lower()
    if word == "latest":
        return Bound("latest")
    if word == "earliest" and lowest == LATEST:
        raise ValueError("nothing could be read then: give latest, an offset, or a JSON of offsets by topic")
    if word == "earliest":
        return Bound("earliest")
    value: Any = None
    with suppress(ValueError):
        value = json.loads(text)
    if type(value) is int and value >= 0:
        return Bound("offsets", offset=value)
    if isinstance(value, dict) and isinstance(value.get("topics"), dict):
        value = value["topics"]  # This is the form in a query's progress.
    if isinstance(value, dict) and all(
        type(each) is int and lowest <= each < 1 << 63 for each in value.values()
    ):
        return Bound("offsets", offsets=value)
    words, codes = "latest, earliest", "-2 for earliest and -1 for latest"
    if lowest == LATEST:
        words, codes = "latest", "-1 for latest"
    raise ValueError(
        f'must be {words}, an offset, or a JSON of offsets by topic such as {{"orders": 501}}, with {codes}'
    )


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, parsed. ``targeted``: also read messages that are for one group only.

    ``least_records``: a topic is cut only into ranges of at least half as many rows.
    """

    connecting: ConnectionParameters
    topics: tuple[str, ...] = option("subscribe", _topics, ())
    pattern: str | None = option("subscribePattern", _pattern)
    table: Table = option("table", _table, "messages")
    start: Bound = option("startingOffsets", partial(_offsets, lowest=EARLIEST), Bound("earliest"))
    end: Bound = option("endingOffsets", partial(_offsets, lowest=LATEST), Bound("latest"))
    max_offsets_per_trigger: int | None = option("maxOffsetsPerTrigger", whole)
    min_partitions: int = option("minPartitions", whole, 1)
    max_records_per_partition: int = option("maxRecordsPerPartition", whole, ROWS_PER_PARTITION)
    fail_on_data_loss: bool = option("failOnDataLoss", flag, True)
    include_headers: bool = option("includeHeaders", flag, False)
    targeted: bool = option("includeTargeted", flag, False)
    group: str | None = option("group", partial(names.check_name, "group", limit=names.GROUP_MAX))
    checkpoint: str | None = option("checkpointLocation", str)
    groups: tuple[str, ...] = option("groups", _several, ())
    settle: bool = option("settle", flag, True)
    poll_interval: float = option("pollInterval", _seconds, 0.2)
    suffixes: Suffixes = BY_DEFAULT
    least_records: int = 1

    @property
    def targets(self) -> tuple[str, ...] | None:
        """Return the groups whose messages are read ('' means messages for all groups). None: read every row."""
        if self.targeted or self.table != "messages":
            return None
        return ("", self.group) if self.group else ("",)

    def named(self, topic: str) -> str:
        """Return the topic as the user named it. For a dead-letter topic, that is the original topic."""
        return self.suffixes.original(topic) or topic if self.table == "dead_letters" else topic

    def reads(self, topic: str) -> bool:
        """Return whether these options select a topic, for example a topic of a checkpoint."""
        name = self.suffixes.original(topic) if self.table == "dead_letters" else topic
        return name is not None and (name in self.topics or self.matches(name))

    def matches(self, topic: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None


TOPICS = ("topic", "subscribe", "subscribePattern")
BOUNDS = (("startingTimestamp", "startingOffsets", "start"), ("endingTimestamp", "endingOffsets", "end"))


def read_options(options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """Return the parsed options. Raises ``OptionError``.

    ``streaming``: whether the read is a stream; None if this is not known yet.
    """
    given = OptionReader(options, ReadOptions, ["topic", "startingTimestamp", "endingTimestamp"])
    if len(selections := list(filter(given.has, TOPICS))) != 1:
        raise OptionError(
            "exactly one of the options 'topic' (one), 'subscribe' (several, with commas between them) and"
            f" 'subscribePattern' must be given, not {' and '.join(map(repr, selections)) or 'none of them'}"
        )
    values = given.field_values()
    if given.has("topic"):
        values["topics"] = given.value("topic", _topic)
    for by_time, by_offset, bound in BOUNDS:
        if given.has(by_time) and given.has(by_offset):
            raise given.bad(by_offset, f"contradicts {by_time!r}: give one of them")
        if given.has(by_time):
            values[bound] = given.value(by_time, _moment)
    found = ReadOptions(given.connecting, suffixes=given.suffixes, **values)
    for name, why in _problems(given, found, streaming):
        raise given.bad(name, why)
    return found


def _problems(given: OptionReader, found: ReadOptions, streaming: bool | None) -> Iterator[tuple[str, str]]:
    """Yield (option, why it does not fit the other options, or this kind of read)."""
    for name, bound in (("startingOffsets", found.start), ("endingOffsets", found.end)):
        by_topic = bound.where == "offsets" and bound.offset is None and found.pattern is None
        if by_topic and set(bound.offsets) != set(found.topics):
            yield name, f"must name exactly the topics that are read: {', '.join(found.topics)}"
    for topic in found.topics:
        first, last = found.start.of(topic), found.end.of(topic)
        if first is not None and last is not None and first > last >= 0:
            yield "endingOffsets", f"{topic!r} would end at {last}, before it begins ({first})"
    if found.start.where == found.end.where == "moment" and found.start.moment > found.end.moment:
        yield "endingTimestamp", f"the read would end before it begins ({found.start.moment})"
    if found.table == "deliveries" and found.group:
        yield "group", "delivery state is read without a group; 'groups' selects whose state to read"
    if found.groups and found.table != "deliveries":
        yield "groups", "only table deliveries has it; did you mean 'group'?"
    if streaming:
        for name in filter(given.has, ("endingOffsets", "endingTimestamp")):
            yield name, "a streaming query has no end: read a batch, or leave it out"
        if found.table == "deliveries":
            yield "table", "delivery state changes while messages are handled: read it in batches"
        if found.group and not found.settle:
            yield "settle", "a query with a group must settle offsets itself: leave it out"
        if found.checkpoint == "":
            yield "checkpointLocation", "must not be empty: leave it out"
        if found.checkpoint is not None and not found.group:
            yield "checkpointLocation", "needs a 'group': leave it out, or give a group"
    elif streaming is False:
        if found.group:
            yield (
                "group",
                "a batch is not a consumer group, because it cannot record that it is done. Leave it out, or use"
                " readStream (with trigger(availableNow=True) it ends by itself)",
            )
        if found.checkpoint is not None:
            yield "checkpointLocation", "a batch has none: leave it out"
        if found.max_offsets_per_trigger is not None:
            yield "maxOffsetsPerTrigger", "only a stream has it; 'endingOffsets' ends a batch"
