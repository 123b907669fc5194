"""The promises of the queue as a small model: which deliveries and attempts are allowed, and what must follow.

The model uses no database and no clock. A driver reports each operation and its result. The model raises ``Breach`` if
the result breaks a promise. It has one topic and any number of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from .dead_letters import Letters
from .things import ENDED, Breach, Expected, Handout, Progress, Status, Stored, Worker


class Model(Letters):
    """One topic: its log, its groups with their progress, and its dead letters."""

    # The log

    def stored(self, partition: str, id: str, group: str = "") -> Stored | None:
        """Return the message of this id in the log, or None."""
        named = (partition, id, group, False)
        return next((m for m in self.log.values() if (m.partition, m.id, m.group, m.returned) == named), None)

    def published(self, offset: int, partition: str, id: str, created: bool, group: str = "") -> None:
        """Check the result of one ``publish``. A new message is committed."""
        self.require(not group or group in self.groups, f"{id!r} was stored for {group}, which is unknown")
        there = self.stored(partition, id, group)
        self.require(
            created == (there is None), f"publish of id {id!r} said created={created}, found {there}"
        )
        if there is None:
            self.committed([Stored(offset, partition, id, group)])
        else:
            self.require(offset == there.offset, f"duplicate of {there} said offset {offset}")

    def committed(self, messages: Iterable[Stored]) -> None:
        """Record that the transaction that published these messages has committed."""
        newest = self.newest
        for message in messages:
            self.require(message.offset not in self.log, f"offset {message.offset} was given out twice")
            self.require(message.offset not in self.past | self.never, f"{message} takes an offset of before")
            self.log[message.offset] = replace(message, late=message.offset < newest)
            self.ever[message.offset] = message
            self.newest = max(self.newest, message.offset)
            for group, progress in self.groups.items():
                if message.group in ("", group):
                    progress[message.offset] = Progress()

    def undone(self, offsets: Iterable[int]) -> None:
        """Record that the transaction that published these offsets has rolled back."""
        self.never.update(offsets)

    def found_in_log(self, offsets: Collection[int]) -> None:
        """Check the offsets in the log. Only messages that every group has finished may be missing."""
        found = set(offsets)
        for offset in found - self.log.keys():
            was = "rolled back" if offset in self.never else "never committed, or was deleted"
            raise Breach(f"the log holds {offset}, which {was}")
        for offset in self.log.keys() - found:
            self.require(bool(self.groups), f"{offset} was deleted, and no group is registered")
            for group, progresses in self.groups.items():
                if offset not in progresses:
                    continue  # The message is for another group.
                progress = progresses.pop(offset)
                over = (
                    progress.status in ENDED
                    or (progress.optional and progress.status is Status.NEW)
                    or self._may_be_buried(group, offset, progress)
                )
                self.require(over, f"{offset} was deleted, and {group} is not done with it: {progress}")
            self.past.add(offset)
            del self.log[offset]

    # The groups

    def subscribed(self, group: str, new: bool, *, latest: bool = False) -> None:
        self.require(new == (group not in self.groups), f"subscribing {group} said new={new}")
        if new:
            self.groups[group] = self._anew(group, lambda offset: latest)

    def _anew(self, group: str, optional: Callable[[int], bool]) -> dict[int, Progress]:
        mine = [m.offset for m in self.log.values() if m.group in ("", group)]
        return {offset: Progress(optional=optional(offset)) for offset in mine}

    def reset(self, group: str, first: int | None) -> None:
        """Let the group start at the offset ``first``. With None, it starts with messages that are published later."""
        self.require(group in self.groups, f"{group} was moved, and is not registered")
        self.groups[group] = self._anew(group, lambda offset: first is None or offset < first)
        self._void(group)

    def paused_or_resumed(self, groups: Collection[str], changed: int, *, paused: bool) -> None:
        """Check ``pause`` or ``resume`` of these groups, and the number of groups that it returned."""
        concerned = {group for group in groups if (group in self.paused) != paused}
        self.require(changed == len(concerned), f"{changed} groups changed, not {concerned}")
        self.paused = self.paused | concerned if paused else self.paused - concerned

    def unsubscribed(self, group: str, was: bool) -> None:
        self.require(was == (group in self.groups), f"unsubscribing {group} said {was}")
        self.groups.pop(group, None)
        self.paused -= {group}
        self._void(group)

    def _void(self, group: str) -> None:
        """Make all deliveries of the group's workers void."""
        for handout in self.handouts:
            handout.void = handout.void or handout.worker.group == group

    # Workers and what happens to them

    def open_of(self, worker: Worker) -> list[Handout]:
        """Return the worker's unanswered deliveries."""
        return [h for h in self._flying(worker.group) if h.worker is worker]

    def gone(self, worker: Worker) -> None:
        """Record that the worker has closed. It loses its leases for ever."""
        worker.gone = True
        for handout in self.open_of(worker):
            handout.void = True

    def superseded(self, worker: Worker) -> None:
        """Record that a newer worker has taken the name, and that the leases are free.

        Until the old worker notices this, it may lease free partitions.
        """
        for handout in self.open_of(worker):
            handout.risky = True

    def leases_ran_out(self, worker: Worker) -> None:
        """Record that the leases have expired. The worker's answers count until others take over its partitions."""
        worker.expired = True
        for handout in self.open_of(worker):
            handout.risky = True

    def are_waiting(self) -> bool:
        """Return whether any message waits for its delay."""
        everything = [progress for progresses in self.groups.values() for progress in progresses.values()]
        return any(p.status is Status.WAITING and not p.due for p in everything)

    def waited(self) -> None:
        """Make every delayed message due."""
        for progresses in self.groups.values():
            for progress in progresses.values():
                progress.due = True

    # Deliveries

    def delivered(
        self, worker: Worker, offset: int, attempt: int, *, alone: bool = False, beside: bool = False
    ) -> Handout:
        """Check a delivery. ``alone``: the message runs alone.

        ``beside``: the member waited ten seconds for others to end.
        """
        what = f"{worker.group}/{worker.name} was given {offset} as attempt {attempt}"
        self.require(not worker.gone, f"{what}, after its end")
        self.require(offset not in self.never, f"{what}, which was rolled back")
        self.require(worker.group in self.groups, f"{what}, of a group that is not registered")
        self.require(worker.group not in self.paused, f"{what}, and the group is paused")
        self.require(offset in self.log, f"{what}, which is not in the log")
        self.require(offset in self.groups[worker.group], f"{what}, which is for another group")
        progress = self.groups[worker.group][offset]
        self.require(progress.status not in ENDED, f"{what}, and the group is done with it: {progress}")
        self.require(
            progress.due or progress.status is not Status.WAITING, f"{what}, before its delay is over"
        )
        again = progress.handout if progress.status is Status.FLYING else None
        self._check_company(what, worker, again, alone, beside)
        if worker.strict:
            self._check_strict(what, worker, offset, again)
        elif not beside:
            self._check_room(what, worker, offset)
        if again:
            self.require(not again.firm, f"{what}, and {again.worker.name} has it")
            progress.failures += again.alone
            progress.counted = again.attempt
            again.void = True
        self.require(attempt == progress.counted + 1, f"{what}, but it is attempt {progress.counted + 1}")
        spent = again is not None and progress.failures >= self.max_attempts
        self.require(not spent, f"{what}, and it is out of attempts: {progress}")
        progress.handout = Handout(worker, offset, attempt, alone, risky=worker.expired)
        progress.status, progress.doubtful = Status.FLYING, False
        self.handouts.append(progress.handout)
        return progress.handout

    def _check_company(
        self, what: str, worker: Worker, again: Handout | None, alone: bool, beside: bool
    ) -> None:
        """Check that no other delivery runs with a message that runs alone.

        An unanswered message must be delivered alone, when its worker has no other open delivery. With the flag
        ``beside``, other deliveries may be open.
        """
        others = [h for h in self.open_of(worker) if h.firm and h is not again]
        lone = [h.offset for h in others if h.alone]
        self.require(not lone, f"{what}, beside {lone}, which should run alone")
        self.require(not alone or again is not None, f"{what} alone, and nobody had left it unanswered")
        self.require(not alone or not others, f"{what} alone, and it has {[h.offset for h in others]}")
        self.require(alone or beside or again is None, f"{what} beside others, and it was left unanswered")

    def _check_strict(self, what: str, worker: Worker, offset: int, again: Handout | None) -> None:
        """Check strict order: one message of a key at a time, the lowest offset first.

        A late message that the group has not had yet may come later.
        """
        partition, progresses = self.log[offset].partition, self.groups[worker.group]
        for other, progress in progresses.items():
            if other == offset or self.log[other].partition != partition:
                continue
            if self._may_be_buried(worker.group, other, progress):
                continue
            if (
                progress.status is Status.FLYING
                and progress.handout
                and (again is None or progress.handout.firm)
            ):
                raise Breach(f"{what}, strict, while {other} of its key is out: {progress}")
            if again is not None or other > offset or progress.status in ENDED or progress.optional:
                continue
            known = progress.status is not Status.NEW or not self.log[other].late
            self.require(not known, f"{what}, strict, before {other}: {progress}")

    def _check_room(self, what: str, worker: Worker, offset: int) -> None:
        partition = self.log[offset].partition
        out = [h.offset for h in self.open_of(worker) if h.firm and self.log[h.offset].partition == partition]
        self.require(len(out) < worker.batch_size, f"{what}, and {out} of its partition are out already")

    # Answers

    def expects(self, handout: Handout, verb: str) -> Expected:
        """Return the result that the verb must have."""
        if handout.answer:
            return Expected.TRUE if handout.answer == verb else Expected.STALE
        if handout.void:
            return Expected.STALE
        return Expected.EITHER if handout.risky or handout.ran_out else Expected.TRUE

    def answered(self, handout: Handout, verb: str, accepted: bool, *, delay: bool = False) -> None:
        """Check the result of a verb: accepted, or refused with ``StaleDelivery``.

        ``delay``: the message is not due at once.
        """
        expected, said = self.expects(handout, verb), Expected.TRUE if accepted else Expected.STALE
        self.require(
            expected in (said, Expected.EITHER), f"{verb} of {handout} was {said.value}, not {expected.value}"
        )
        if not accepted or handout.answer:
            return
        if verb == "extend":
            handout.ran_out = False
            return
        handout.answer = verb
        progress = self.groups[handout.worker.group][handout.offset]
        failed = progress.failures + (verb in ("nack", "reject"))
        progress.counted = handout.attempt - (verb == "postpone")
        if verb == "ack":
            progress.status = Status.DONE
        elif verb == "reject" or (verb == "nack" and failed >= self.max_attempts):
            self._died(handout.offset, handout.worker.group, failed)
        else:
            progress.status, progress.due, progress.failures = Status.WAITING, not delay, failed

    # The end

    def owed(self, group: str) -> list[int]:
        """Return the offsets that the group must still finish."""
        return [
            offset
            for offset, progress in self.groups[group].items()
            if progress.status not in ENDED
            and not (progress.optional and progress.status is Status.NEW)
            and not self._may_be_buried(group, offset, progress)
        ]

    def _flying(self, group: str) -> list[Handout]:
        progresses = self.groups.get(group, {}).values()
        return [p.handout for p in progresses if p.status is Status.FLYING and p.handout]
