"""Find the offsets up to which a report reads the archive and the live log, and messages that may be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...exceptions import LogGap
from ...policy.names import TOPIC_MAX
from ...service.registration import groups_of
from ...store import offsets as positions
from ...store import parked_retries as parked
from ...store.queries import group_rows
from ..archives.requests import TABLES
from ..archives.topic_state import gap_above
from ..connecting import connected, connecting
from ..errors import NoSuchTopic
from ..reader.options import Table, read_options
from ..reader.planning import topics_of
from ..reader.settling import readable
from ..sql import bulk
from .requests import ReportRequest

if TYPE_CHECKING:
    from ..archives.catalog import Archive

PAGE = 5_000
"""The maximum number of parked retries in one query."""

Retry = tuple[str, int, str]
"""A parked retry: its topic, the offset of the message in the log, and its group."""


@dataclass
class Extent:
    """The offsets up to which each table of a topic is read: in the archive, and in the live log."""

    archived: dict[Table, int] = field(default_factory=dict)
    live: dict[Table, int] = field(default_factory=dict)
    groups: dict[str, positions.Registration] = field(default_factory=dict)

    def new_bounds(self, table: Table) -> tuple[int, int]:
        """Return the bounds of the log: it is read above the first offset and up to the second."""
        return self.archived.get(table, 0), self.live.get(table, 0)

    def overlap_bounds(self, table: Table) -> tuple[int, int]:
        """Return the bounds between which the log is searched for archived rows.

        No group needs messages up to the first offset.
        """
        upto = min(self.archived.get(table, 0), self.live.get(table, 0))
        return min((group.start for group in self.groups.values()), default=upto), upto


def extents_of(
    request: ReportRequest, archive: Archive | None
) -> tuple[dict[str, Extent], int | None, set[Retry]]:
    """Return the extents of the topics, sorted by name, the time by the database's clock, and the parked retries."""
    found: dict[str, Extent] = {}
    retries: set[Retry] = set()
    if archive is not None:
        for topic in filter(request.matches, archive.topics()):
            found[topic] = Extent(archived={table: archive.upto(topic, table) for table in TABLES})
    at = None
    if request.live:
        with connected(connecting(request.options)) as using:
            at = group_rows.now_ms(using)
            live = _live_topics(using, request, found)
            retries = parked_retries(using, {*live, *found})
            for topic in live:
                _read_live_extent(using, request, topic, found.setdefault(topic, Extent()))
    elif unknown := [topic for topic in request.topics if topic not in found]:
        raise NoSuchTopic(
            f"the archive {request.archive} has no topic {', '.join(map(repr, unknown))};"
            f" it has {', '.join(archive.topics() if archive else ()) or 'none'}"
        )
    if not found:
        raise NoSuchTopic(f"no topic matches {request.pattern!r}")
    return dict(sorted(found.items())), at, retries


def parked_retries(using: str, topics: Iterable[str]) -> set[Retry]:
    found: set[Retry] = set()
    for topic in topics:
        above = 0
        while len(topic) <= TOPIC_MAX and (page := parked.waiting(using, topic, above, PAGE)):
            above = page[-1][0]
            found.update((topic, offset, group) for _, group, offset in page if offset is not None)
    return found


def gaps_of(request: ReportRequest, archive: Archive | None, extents: Mapping[str, Extent]) -> list[str]:
    """Return sentences about topics for which the log may lack messages above the end of the archive.

    They may be missing if the archive's group did not hold back deletion all the time. Raises ``LogGap`` for this,
    unless the request allows gaps. There is also a sentence for each topic whose archive reaches above all offsets that
    this database has settled.
    """
    if archive is None or not request.live:
        return []
    gaps = []
    with connected(connecting(request.options)) as using:
        for topic, extent in extents.items():
            upto = min(extent.archived.get(table, 0) for table in ("messages", "deliveries"))
            end = extent.archived.get("messages", 0)
            known = max(extent.live.get("messages", 0), positions.settled(using, topic))
            if extent.live and end > known:
                # Not an error: reports may read a replica to relieve the primary, and it may be a little behind.
                gaps.append(
                    f"topic {topic!r}: the archive reaches offset {end}, but this database has settled nothing above"
                    f" {known}: it was restored to an earlier state, or is a replica that is behind. At offsets up to"
                    f" {end}, only messages of the archive are counted."
                )
            if upto >= known:
                continue
            if gap := gap_above(using, archive, topic, upto):
                if request.strict:
                    raise LogGap(". ".join(gap))
                gaps.append(f"{gap[0]}. Some messages may be missing here.")
    return gaps


def _live_topics(using: str, request: ReportRequest, archived: Collection[str]) -> list[str]:
    """Return the topics that the log holds, or for which a group is registered.

    A named topic must be in the log or in the archive: otherwise this raises ``NoSuchTopic``.
    """
    if request.pattern is not None:
        return topics_of(using, read_options({**request.options, "subscribePattern": request.pattern}))
    for topic in request.topics:
        if topic not in archived:
            topics_of(using, read_options({**request.options, "topic": topic}))
    return [topic for topic in request.topics if bulk.topics(using, topic)]


def _read_live_extent(using: str, request: ReportRequest, topic: str, extent: Extent) -> None:
    options = read_options({**request.options, "topic": topic})
    dead_topic = options.suffixes.dead_letter_topic(topic)
    last = readable(using, [topic, dead_topic], options)
    extent.live = {"messages": last[topic], "deliveries": last[topic], "dead_letters": last[dead_topic]}
    for group in groups_of(using, topic):
        if registration := positions.registration(using, group, topic):
            extent.groups[group] = registration


def check_unmoved(archive: Archive | None, extents: Mapping[str, Extent]) -> None:
    """Raise ``LogGap`` if the archive has grown: rows may have been deleted from the log before they were read."""
    assert archive is not None
    for topic, extent in extents.items():
        for table in TABLES:
            if archive.upto(topic, table) > extent.archived.get(table, 0):
                raise LogGap(
                    f"topic {topic!r} was archived further while it was read, so some messages may be missing: make"
                    " the report again while no archive run is active"
                )
