"""Statistics of topics: the messages that each topic holds, for whatever group."""

from __future__ import annotations

from collections.abc import Sequence

from .. import conf
from ..policy.durations import moment
from ..policy.names import scheduled_topic
from ..store.connection import session
from ..store.queries.partition_walk import OFFSET_END
from .derived import Derived
from .results import TopicFigures
from .sampling import figure
from .surveying import Surveyor, size_for


def topic_figures(using: str, topics: Sequence[str], exact: int | None = None) -> dict[str, TopicFigures]:
    """Return the figures of the topics, by name."""
    if not topics:
        return {}
    with session.migration_errors(using):
        surveyor = Surveyor(using, size_for(len(topics), exact))
        surveyor.prepare(topics)
        derived = Derived(
            surveyor,
            [scheduled_topic(topic) for topic in topics],
            [conf.dead_letter_topic(topic) for topic in topics],
        )
        return {topic: _figures(surveyor, derived, topic) for topic in topics}


def _figures(surveyor: Surveyor, derived: Derived, topic: str) -> TopicFigures:
    kept = figure(surveyor.survey(topic, None, 0, OFFSET_END, whole=True), lambda row: True)
    end = surveyor.ends(topic)
    ends = (end.first, moment(end.first_at), end.last, moment(end.last_at)) if end else ()
    return TopicFigures(
        topic, moment(surveyor.now), kept, derived.all_of(scheduled_topic(topic)),
        derived.all_of(conf.dead_letter_topic(topic)), *ends,
    )  # fmt: skip
