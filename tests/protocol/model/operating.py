"""Operations on groups and dead letters, and handlers that take effect in one commit with their ack."""

from __future__ import annotations

from django_mqueue import Delivery, Published, StaleDelivery, pause, publish, purge, redrive, reset, resume
from django_mqueue.models import Message

from .driver import Driver
from .publisher import partition_of
from .things import Handout, Stored


class Undo(Exception):
    """The exception of a handler that fails after its effect."""


class Operator(Driver):
    """A driver with the operations of an operator."""

    # Groups

    def stand_still(self, group: str | None, *, paused: bool) -> None:
        """Pause or resume a group. With None, pause or resume all groups."""
        verb = pause if paused else resume
        self.tell(f"{verb.__name__} {group or 'all'}")
        groups = set(self.model.groups) if group is None else {group}
        self.model.paused_or_resumed(groups, verb(self.topic, group), paused=paused)

    def reset(self, group: str, first: int | str) -> None:
        """Reset a group to an offset, to the earliest or to the latest."""
        self.tell(f"reset {group} to {first}")
        above = reset(self.topic, group, first, force=True)  # type: ignore[arg-type]
        newest = self.model.newest
        self.model.require(above <= newest, f"{group} begins above {above}, the newest is {newest}")
        self.model.reset(group, {"earliest": 0, "latest": None}[first] if isinstance(first, str) else first)

    # Dead letters

    def redrive(self, limit: int | None, cut: int | None = None) -> None:
        """Redrive. A call that is killed has sent back all letters that it should, or none."""
        said: list[int] = []
        finished = self.attempted("redrive", lambda: said.append(redrive(self.topic, limit=limit)), cut)
        rows = Message.objects.filter(topic=self.topic, original_id__isnull=False).exclude(
            offset__in=self.model.ever
        )
        returned = [
            Stored(row.offset, row.partition_key, row.original_id or "", row.consumer_group, returned=True)
            for row in rows.order_by("offset")
        ]
        self.tell(f"redrive {limit}: {[(m.offset, m.id, m.group) for m in returned]}")
        if not finished:
            if not returned:
                return
            said = [len(returned)]
        self.model.redriven(self._letters(), returned, said[0], limit)
        self.model.committed(returned)

    def purge(self, limit: int | None) -> None:
        self.tell(f"purge {limit}")
        said = purge(self.topic, limit=limit)
        self.model.purged(self._letters(), said, limit)

    def _letters(self) -> set[tuple[int, str]]:
        return {(offset, group) for offset, group, _ in self.found_letters()}

    # Effects

    def effect(self, delivery: Delivery, handout: Handout, *, fails: bool, cut: int | None = None) -> None:
        """Run a handler that publishes in one commit with the ack. If it fails after that, nothing must remain."""
        id, came, accepted = self.new_id(), list[Published](), list[bool]()

        def call() -> None:
            try:
                with delivery.atomic():
                    came.append(publish(self.topic, {"id": id, "key": "a"}, key="a", id=id))
                    if fails:
                        raise Undo
                accepted.append(True)
            except (StaleDelivery, Undo):
                accepted.append(False)

        what = f"{handout.worker.group}/{handout.worker.name} {handout.offset} #{handout.attempt}"
        went_through = self.attempted("effect", call, cut)
        self.tell(f"effect of {what}{' fails' if fails else ''}: {accepted} {[p.offset for p in came]}")
        if went_through and handout.answer:
            refused = accepted == [False] and not came
            self.model.require(refused, f"effect of {handout}, which was answered: {accepted}")
        elif went_through and accepted == [True]:
            self.model.answered(handout, "ack", True)
            self.model.published(came[0].offset, partition_of("a", id), id, True)
        else:
            self.model.undone(p.offset for p in came)
            if went_through and not fails:
                self.model.answered(handout, "ack", False)
