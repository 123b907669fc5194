"""Reset a group's position, pause a group, and resume it."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import GroupActive, NotRegistered
from ..policy import names
from ..protocol.retention import removing
from ..store import heartbeats, offsets
from ..store.connection import session
from ..store.connection.second_connection import outside_snapshot
from .actions import Author, record
from .registration import Start, check_group, check_names, check_start, require_registration, start_above


def reset(
    topic: str,
    group: str,
    to: Start,
    *,
    force: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
) -> int:
    """Move a group to another position in a topic. Return the offset up to which the group then counts as done.

    * ``to``: ``"earliest"``, ``"latest"``, an aware datetime, or an offset, as ``start`` of ``subscribe``.
    * ``force``: reset the group even if its subscribers are running. They then start again at the new position.
    * ``by``, ``why``: the author and the reason, for the record of actions. ``by=""``: this process.
    * ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

    Messages after the new position that the log still holds are delivered again, with fresh attempts. Messages before
    it are not delivered. The state of the group is deleted, but its dead letters stay. Settling a delivery from
    before the reset raises ``StaleDelivery``. The returned offset is never above the settled offset, so that the
    group misses no message that commits late.

    The first transaction sets the new start, and deletes up to 1,000 rows each of leases, delivery states and
    positions. It joins the caller's transaction, if there is one. Transactions of at most 1,000 rows delete the rest
    after the commit. Until then the group receives nothing. If this process dies, workers of the topic continue.

    Raises ``NotRegistered`` if the group is not registered, ``GroupActive`` if its subscribers are running and
    ``force`` is false, and ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    return reset_seen(topic, group, to, None, force=force, author=Author(by, why), using=using)


def reset_seen(
    topic: str,
    group: str,
    to: Start,
    generation: int | None,
    *,
    force: bool,
    author: Author,
    using: str | None = None,
) -> int:
    """Do what ``reset`` does, if ``generation`` is the group's registration generation or None.

    Raises ``ValueError`` if the generation is another one: the group was reset or registered again meanwhile.
    """
    check_names(topic, group)
    check_start(to)
    alias = conf.database(using)
    with session.raises_not_migrated(alias):
        require_registration(alias, topic, group)
        above, known = start_above(alias, topic, to)

        def work(cursor: CursorWrapper) -> tuple[int, bool]:
            settled = max(offsets.lock_topic(cursor, topic), known)
            # Not from the caller's snapshot, which may hide that an operator has paused or reset the group.
            found = offsets.lock_registration(cursor, group, topic)
            if found is None:
                raise NotRegistered(topic, group)
            with outside_snapshot(alias) as fresh:
                running = heartbeats.members(fresh, group, topic, conf.lease_ms(topic))
            if running and not force:
                raise GroupActive(topic, group, running)
            if generation is not None and found.generation != generation:
                raise ValueError(
                    f"group {group!r} on topic {topic!r} was reset or registered again meanwhile"
                )
            offsets.unregister(cursor, group, topic, members_stay=True)
            has_rows_left = removing.begin(cursor, topic, group)
            offsets.advance_settled(cursor, topic, settled)
            start = min(above, settled)
            offsets.register(
                cursor,
                group,
                topic,
                start,
                paused=found.paused,
                reads_log=found.reads_log,
                resetting=has_rows_left,
            )
            record(cursor, author, "reset", topic, group, to=str(to), start=start, force=force or None)
            return start, has_rows_left

        start, has_rows_left = session.run(alias, work)
        if has_rows_left:
            removing.finish(alias, topic, group)
        return start


def pause(
    topic: str, group: str | None = None, *, by: str = "", why: str = "", using: str | None = None
) -> int:
    """Deliver nothing more to a group until ``resume``. Return how many groups this call has paused.

    ``group``: None pauses all groups of the topic. ``by``, ``why``: the author and the reason, for the record of
    actions; ``by=""``: this process. ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

    When the call returns, no worker can claim further messages for the group. Handlers may acknowledge the messages
    that they have. Publishing continues, and messages that the group is not done with are not deleted. The pause also
    holds for workers that start later. A group that reads the log itself, as a Spark query or an archive does, is not
    paused or counted: nothing is delivered to it.

    Raises ``NotRegistered`` if the group is not registered, and ``TypeError`` or ``ValueError`` for invalid names.
    """
    return _set_paused(topic, group, Author(by, why), using, paused=True)


def resume(
    topic: str, group: str | None = None, *, by: str = "", why: str = "", using: str | None = None
) -> int:
    """End a ``pause``. Return how many groups this call has resumed. It takes the parameters of ``pause``.

    Workers continue within ``DISCOVERY_INTERVAL``. Raises ``NotRegistered`` if the group is not registered, and
    ``TypeError`` or ``ValueError`` for invalid names.
    """
    return _set_paused(topic, group, Author(by, why), using, paused=False)


def _set_paused(topic: str, group: str | None, author: Author, using: str | None, *, paused: bool) -> int:
    names.check_topic(topic)
    if group is not None:
        check_group(group)
    alias = conf.database(using)

    def work(cursor: CursorWrapper) -> int:
        changed = offsets.set_paused(cursor, topic, group, paused=paused)
        if changed:
            record(cursor, author, "pause" if paused else "resume", topic, group or "", groups=changed)
        return changed

    with session.raises_not_migrated(alias):
        if group is not None:
            require_registration(alias, topic, group)
        return session.run(alias, work)
