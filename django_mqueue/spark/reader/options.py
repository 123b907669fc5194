"""The options of ``format("mqueue")`` for reading. Names are case-insensitive, as in Spark.

An option with the same meaning as one of Spark's Kafka source has its name. An invalid option raises ``OptionError`` at
once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...policy import names
from ..connecting import CONNECTION_OPTIONS, ConnectionParameters, connecting
from ..errors import OptionError
from ..suffixes import BY_DEFAULT, OPTION, Suffixes, suffixes_of

Table = Literal["messages", "dead_letters", "deliveries"]
EARLIEST, LATEST = -2, -1
"""Values in a JSON of offsets, as in Spark's Kafka source."""

ROWS_PER_PARTITION = 200_000
TOPIC_MAX = 128


@dataclass(frozen=True)
class Bound:
    """The start or the end of a read: an end of the log, a moment (epoch milliseconds), or offsets by topic.

    In a start, an offset is the first message that is read. In an end, it is the first message that is not read.
    """

    where: Literal["earliest", "latest", "moment", "offsets"]
    moment: int = 0
    offset: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)

    def of(self, topic: str) -> int | None:
        """Return the offset for a topic, which may be ``EARLIEST`` or ``LATEST``; None if none was given."""
        return self.offsets.get(topic, self.offset)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, parsed. ``targeted``: also read messages that are for one group alone."""

    connecting: ConnectionParameters
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    table: Table = "messages"
    start: Bound = Bound("earliest")
    end: Bound = Bound("latest")
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 1
    max_records_per_partition: int = ROWS_PER_PARTITION
    fail_on_data_loss: bool = True
    include_headers: bool = False
    targeted: bool = False
    group: str | None = None
    checkpoint: str | None = None
    groups: tuple[str, ...] = ()
    settle: bool = True
    poll_interval: float = 0.2
    suffixes: Suffixes = BY_DEFAULT

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


_KNOWN = {
    "topic", "subscribe", "subscribePattern", "table", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss",
    "includeHeaders", "includeTargeted", "group", "groups", "settle", "pollInterval", OPTION,
    "checkpointLocation",
} | CONNECTION_OPTIONS  # fmt: skip


class OptionReader:
    """The options as the user gave them. Its methods return checked values, or raise ``OptionError``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): str(value) for name, value in options.items()}

    def has(self, name: str) -> bool:
        return name.lower() in self.values

    def text(self, name: str) -> str | None:
        return self.values.get(name.lower())

    def refuse_unknown(self, known: Collection[str], values: Mapping[str, str]) -> None:
        """Raise ``OptionError`` for a name that is not in ``known``, and for a password."""
        small = {name.lower() for name in known}
        for name in values:
            if name == "password":
                raise OptionError(
                    "option 'password' is refused, because Spark keeps options in plans and logs. Give the password"
                    " to the executors in the environment (MQUEUE_PASSWORD), 'passwordFile', 'defaultsFile' or"
                    " 'connectionHook'"
                )
            if name not in small:
                raise OptionError(
                    f"option {name!r} is {values[name]!r}, but this option does not exist; known options are"
                    f" {', '.join(sorted(known))}"
                )

    def bad(self, name: str, why: str) -> OptionError:
        return OptionError(f"option {name!r} is {self.text(name)!r}, but {why}")

    def whole(self, name: str, default: int | None) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or int(value) < 1:
            raise self.bad(name, "must be a whole number, at least 1")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise self.bad(name, "must be true or false")
        return value.strip().lower() == "true"

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", value.strip()) or not 0 < float(value) <= 3600:
            raise self.bad(name, "must be seconds, more than 0 and at most 3600")
        return float(value)

    def checked(self, name: str, value: str, check: Callable[[str], object]) -> str:
        """Return ``value`` if ``check`` accepts it. Raises ``OptionError``."""
        try:
            check(value)
        except (TypeError, ValueError) as error:
            raise self.bad(name, f"{value!r} is not valid: {error}") from None
        return value


def read_options(options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """Return the parsed options. Raises ``OptionError``.

    ``streaming``: whether the read is a stream; None if this is not known yet.
    """
    given = OptionReader(options)
    given.refuse_unknown(_KNOWN, given.values)
    topics, pattern = _topics(given)
    table = _table(given)
    limits: dict[str, Any] = {
        "max_offsets_per_trigger": given.whole("maxOffsetsPerTrigger", None),
        "min_partitions": given.whole("minPartitions", 1),
        "max_records_per_partition": given.whole("maxRecordsPerPartition", ROWS_PER_PARTITION),
    }
    group = given.text("group")
    if group is not None:
        given.checked("group", group, lambda name: names.check_name("group", name, names.GROUP_MAX))
    how = connecting(given.values)
    found = ReadOptions(
        how,
        topics,
        pattern,
        table,
        _bound(given, "starting", Bound("earliest")),
        _bound(given, "ending", Bound("latest")),
        **limits,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        targeted=given.flag("includeTargeted", False),
        group=group,
        checkpoint=given.text("checkpointLocation"),
        groups=_several(given, "groups"),
        settle=given.flag("settle", True),
        poll_interval=given.seconds("pollInterval", 0.2),
        suffixes=suffixes_of(given.values, how),
    )
    _refuse_together(given, found)
    if streaming is not None:
        (_refuse_in_a_stream if streaming else _refuse_in_a_batch)(given, found)
    return found


def _topics(given: OptionReader) -> tuple[tuple[str, ...], str | None]:
    ways = [name for name in ("topic", "subscribe", "subscribePattern") if given.has(name)]
    if len(ways) != 1:
        said = " and ".join(repr(name) for name in ways) or "none of them"
        raise OptionError(
            "exactly one of the options 'topic' (one), 'subscribe' (several, with commas between them) and"
            f" 'subscribePattern' must be given, not {said}"
        )
    if given.has("subscribePattern"):
        pattern = given.text("subscribePattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            raise given.bad("subscribePattern", f"must be a Python regular expression: {error}") from None
        return (), pattern
    topics = (given.text("topic") or "",) if given.has("topic") else _several(given, "subscribe")
    for topic in topics or ("",):
        given.checked(ways[0], topic, lambda name: names.check_topic(name, TOPIC_MAX))
    return tuple(sorted(set(topics))), None


def _several(given: OptionReader, name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in (given.text(name) or "").split(",") if part.strip())


def _table(given: OptionReader) -> Table:
    match given.text("table"):
        case None | "messages":
            return "messages"
        case "dead_letters":
            return "dead_letters"
        case "deliveries":
            return "deliveries"
        case _:
            raise given.bad("table", "must be messages, dead_letters or deliveries")


def _bound(given: OptionReader, which: Literal["starting", "ending"], default: Bound) -> Bound:
    by_offset, by_time = f"{which}Offsets", f"{which}Timestamp"
    if given.has(by_offset) and given.has(by_time):
        raise OptionError(
            f"options {by_offset!r} ({given.text(by_offset)}) and {by_time!r} ({given.text(by_time)}) contradict each"
            " other: give one of them"
        )
    if (time := given.text(by_time)) is not None:
        if not re.fullmatch(r"[0-9]{1,15}", time.strip()):
            raise given.bad(by_time, "must be milliseconds since 1970 in UTC, as a whole number")
        return Bound("moment", moment=int(time))
    text = given.text(by_offset)
    if text is None:
        return default
    ends: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
    word = text.strip().lower()
    if which == "ending" and word == "earliest":
        raise given.bad(
            by_offset, "nothing could be read then: give latest, an offset, or a JSON of offsets by topic"
        )
    if word in ends:
        return Bound(ends[word])
    return _offsets(given, by_offset, text)


def _offsets(given: OptionReader, name: str, text: str) -> Bound:
    wanted = (
        'must be latest, earliest (to start), an offset, or a JSON of offsets by topic such as {"orders": 501},'
        " with -2 for earliest and -1 for latest"
    )
    try:
        value = json.loads(text)
    except ValueError:
        raise given.bad(name, wanted) from None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Bound("offsets", offset=value)
    if isinstance(value, dict) and isinstance(value.get("topics"), dict):
        value = value["topics"]  # This is the form in a query's progress.
    lowest = EARLIEST if name.startswith("starting") else LATEST
    if not isinstance(value, dict) or not all(
        isinstance(each, int) and not isinstance(each, bool) and lowest <= each < 1 << 63
        for each in value.values()
    ):
        raise given.bad(name, wanted)
    return Bound("offsets", offsets=value)


def _refuse_together(given: OptionReader, found: ReadOptions) -> None:
    """Raise ``OptionError`` for options that contradict each other in every read."""
    for name in ("startingOffsets", "endingOffsets"):
        bound = found.start if name.startswith("starting") else found.end
        by_topic = bound.where == "offsets" and bound.offset is None and found.pattern is None
        if by_topic and set(bound.offsets) != set(found.topics):
            raise given.bad(name, f"must name exactly the topics that are read: {', '.join(found.topics)}")
    for topic in found.topics:
        first, last = found.start.of(topic), found.end.of(topic)
        if first is not None and last is not None and first > last >= 0:
            raise given.bad("endingOffsets", f"{topic!r} would end at {last}, before it begins ({first})")
    if found.start.where == found.end.where == "moment" and found.start.moment > found.end.moment:
        raise given.bad("endingTimestamp", f"the read would end before it begins ({found.start.moment})")
    if found.table == "deliveries" and found.group:
        raise given.bad(
            "group", "delivery state is read without a group; 'groups' selects whose state to read"
        )
    if found.groups and found.table != "deliveries":
        raise given.bad("groups", "is for table deliveries; did you mean 'group'?")


def _refuse_in_a_stream(given: OptionReader, found: ReadOptions) -> None:
    for name in ("endingOffsets", "endingTimestamp"):
        if given.has(name):
            raise given.bad(name, "a streaming query has no end: read a batch, or leave it out")
    if found.table == "deliveries":
        raise given.bad("table", "delivery state changes while messages are handled: read it in batches")
    if found.group and not found.settle:
        raise given.bad("settle", "a query with a group moves the settled offset: leave it out")
    if found.checkpoint is not None and not (found.group and found.checkpoint):
        raise given.bad("checkpointLocation", "is used only with a 'group': leave it out, or give a group")


def _refuse_in_a_batch(given: OptionReader, found: ReadOptions) -> None:
    if found.group:
        raise given.bad(
            "group",
            "a batch is not a consumer group, because it cannot record that it is done. Leave it out, or use"
            " readStream (with trigger(availableNow=True) it ends by itself)",
        )
    if found.checkpoint is not None:
        raise given.bad("checkpointLocation", "a batch has none: leave it out")
    if found.max_offsets_per_trigger is not None:
        raise given.bad("maxOffsetsPerTrigger", "is for streaming queries; 'endingOffsets' ends a batch")
