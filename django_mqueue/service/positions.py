"""Where a group stands, changed by hand: begin elsewhere, stand still, go on."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import GroupActive, NotRegistered
from ..policy import names
from ..store import heartbeats, offsets, session
from . import removing
from .registration import Start, check_group, check_start, start_above, topic_limit


def reset(topic: str, group: str, to: Start, *, force: bool = False, using: str | None = None) -> int:
    """Let a group begin elsewhere in a topic: at ``"earliest"``, ``"latest"``, an aware datetime, or an offset.

    What comes after that place and is still in the log is delivered again, with fresh attempts; what comes before it
    is not. What the group has done there is forgotten; dead letters stay. Answers to deliveries that are open then
    raise ``StaleDelivery``. Returns the offset up to which the group counts as done; it is never above what is settled,
    so that no message which commits late is skipped.

    The new start and the removal of up to 1,000 leases, delivery states and positions each are one transaction (the
    caller's, if there is one). While there are more, nothing is delivered to the group: transactions of at most 1,000
    rows delete them, after the caller's commit. If this process dies meanwhile, workers of the topic do it.

    Raises ``NotRegistered``, and ``GroupActive`` while the group's subscribers run, unless ``force`` is given: then
    they begin anew.
    """
    return reset_seen(topic, group, to, None, force=force, using=using)


def reset_seen(
    topic: str, group: str, to: Start, life: int | None, *, force: bool, using: str | None = None
) -> int:
    """``reset``, if the group's registration is still the one that somebody has seen (None: whichever it is).

    Raises ``ValueError`` where it is another: the group was reset meanwhile, or registered anew.
    """
    names.check_topic(topic, topic_limit())
    check_group(group)
    check_start(to)
    alias = conf.database(using)
    with session.explained(alias):
        _registration(alias, topic, group)
        above, known = start_above(alias, topic, to)

        def work(cursor: CursorWrapper) -> tuple[int, bool]:
            settled = max(offsets.lock_topic(alias, cursor, topic), known)
            if not offsets.is_registered(cursor, group, topic):
                raise NotRegistered(topic, group)
            running = heartbeats.members(alias, group, topic, conf.lease_ms(topic))
            if running and not force:
                raise GroupActive(topic, group, running)
            if life is not None and _registration(alias, topic, group).life != life:
                raise ValueError(f"group {group!r} on topic {topic!r} was moved or registered anew meanwhile")
            paused = _registration(alias, topic, group).paused
            offsets.unregister(cursor, group, topic, members_stay=True)
            rest = removing.begin(cursor, topic, group)
            offsets.raise_settled(cursor, topic, settled)
            start = min(above, settled)
            offsets.register(cursor, group, topic, start, paused=paused, resetting=rest)
            return start, rest

        start, rest = session.run(alias, work)
        if rest:
            removing.finish(alias, topic, group)
        return start


def pause(topic: str, group: str | None = None, *, using: str | None = None) -> int:
    """Deliver nothing more to a group (None: to any group of the topic) until ``resume``: how many groups that changes.

    When it returns no message is on its way to a handler any more that was not there before. What handlers have
    they may answer. Publishing goes on, and nothing is deleted that the group has not done. It lasts, also for
    workers that start later. A group that reads the log by itself, as a Spark query or an archive does, is not paused,
    nor counted: nothing is delivered to it. Raises ``NotRegistered`` for a group that is not registered.
    """
    return _set(topic, group, using, paused=True)


def resume(topic: str, group: str | None = None, *, using: str | None = None) -> int:
    """End a ``pause``: how many groups go on. Workers find out within ``DISCOVERY_INTERVAL``."""
    return _set(topic, group, using, paused=False)


def _set(topic: str, group: str | None, using: str | None, *, paused: bool) -> int:
    names.check_topic(topic, topic_limit())
    if group is not None:
        check_group(group)
    alias = conf.database(using)
    with session.explained(alias):
        if group is not None:
            _registration(alias, topic, group)
        return session.run(alias, lambda cursor: offsets.set_paused(cursor, topic, group, paused=paused))


def _registration(alias: str, topic: str, group: str) -> offsets.Registration:
    found = offsets.registration(alias, group, topic)
    if found is None:
        raise NotRegistered(topic, group)
    return found
