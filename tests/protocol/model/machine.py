"""Random operations of several groups and workers. Each step is compared with the model."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from django_mqueue import Delivery
from tests.support.threads import RawConnection

from .drain import drain
from .driver import Member
from .model import Model
from .operating import Operator
from .publisher import Held
from .things import Handout, Worker
from .time_passing import PERIODIC

GROUPS = ("billing", "mail", "reports")
NAMES = ("one", "two", "three")
KEYS = ("a", "b", None)
IDS = ("x", "y")
MOST_MEMBERS = 5
UNTOLD = tuple(what for what in PERIODIC if what != "discover")
"""All periodic work except the step that reads a pause."""
LAST = 4
"""The number of last deliveries that may be answered again, in addition to the open ones."""

numbers = itertools.count()
"""Each story uses a new topic, because publishers may wait for ids that were deleted a moment ago."""

names = st.sampled_from(NAMES)
groups = st.sampled_from(GROUPS)
items = st.tuples(st.sampled_from(KEYS), st.sampled_from((*IDS, None, None)))
dues = st.one_of(
    st.just(frozenset(PERIODIC)), st.just(frozenset(PERIODIC)), st.frozensets(st.sampled_from(PERIODIC))
)
whose = st.one_of(
    st.just([""] * 4), st.lists(st.sampled_from(("", "", "", 0, 0, 1, 1, GROUPS[0])), min_size=4, max_size=4)
)
"""The group of each message. A number selects a registered group, if there is any."""
cuts = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 25))
short_cuts = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3))
verbs = st.sampled_from(("ack", "ack", "ack", "nack", "nack", "reject", "postpone", "extend"))


class Machine(RuleBasedStateMachine):
    """One topic. Every rule is one operation. Most rules select an existing object by an index."""

    driver: Operator

    def __init__(self) -> None:
        super().__init__()
        self.stalled: list[Worker] = []

    @initialize(max_attempts=st.integers(1, 3), group=groups, latest=st.booleans(), strict=st.booleans())
    def begin(self, max_attempts: int, group: str, latest: bool, strict: bool) -> None:
        self.driver = Operator(Model(max_attempts), RawConnection(), f"orders-{next(numbers)}")
        self.driver.tell(f"max_attempts={max_attempts}")
        self.driver.subscribe(group, latest=latest)
        self.driver.open(group, "one", strict=strict)
        self.driver.publish([("a", "x"), ("a", self.driver.new_id()), ("b", self.driver.new_id())])

    # Publishing

    def _free(self, wanted: list[tuple[str | None, str | None]]) -> list[tuple[str | None, str]]:
        """Return the items with new ids for None, and for ids that an open transaction has published."""
        return [
            (key, self.driver.new_id() if id is None or self.driver.is_pending(key, id) else id)
            for key, id in wanted
        ]

    @rule(wanted=st.lists(items, min_size=1, max_size=4), cut=short_cuts, whose=whose)
    def publish(
        self, wanted: list[tuple[str | None, str | None]], cut: int | None, whose: list[str | int]
    ) -> None:
        there = sorted(self.driver.model.groups) or [""]
        named = [group if isinstance(group, str) else there[group % len(there)] for group in whose]
        self.driver.publish(self._free(wanted), cut, named[: len(wanted)])

    @precondition(lambda self: len(self.driver.held) < 3)
    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    def publish_and_hold(self, keys: list[str | None]) -> None:
        """Use new ids only: a held publisher of a used id would make other publishers of it wait."""
        self.driver.hold([(key, self.driver.new_id()) for key in keys])

    @precondition(lambda self: self.driver.held)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: Any, commit: bool) -> None:
        held: Held = data.draw(st.sampled_from(self.driver.held))
        self.driver.end(held, commit=commit)

    # Groups and workers

    @precondition(lambda self: len(self.driver.model.groups) < len(GROUPS))
    @rule(group=groups, latest=st.booleans())
    def subscribe(self, group: str, latest: bool) -> None:
        self.driver.subscribe(group, latest=latest)

    @precondition(lambda self: len(self.driver.answers) > 2)
    @rule(group=groups)
    def unsubscribe(self, group: str) -> None:
        self.driver.unsubscribe(group)

    @precondition(lambda self: len(self.driver.members) < MOST_MEMBERS)
    @rule(group=groups, name=names, strict=st.booleans())
    def open(self, group: str, name: str, strict: bool) -> None:
        self.driver.open(group, name, strict=strict)

    @precondition(lambda self: len(self.driver.members) > 1)
    @rule(data=st.data())
    def close(self, data: Any) -> None:
        self.driver.close(self._member(data))

    @precondition(lambda self: self.driver.members)
    @rule(data=st.data(), noticed=st.booleans())
    def stall(self, data: Any, noticed: bool) -> None:
        """Let a subscriber crash or hang for long. Its deliveries may still be answered."""
        member = self._member(data)
        self.driver.stall(member, noticed=noticed)
        if not noticed:
            self.stalled.append(member.worker)

    @precondition(lambda self: self.stalled)
    @rule()
    def notice(self) -> None:
        self.driver.notice(self.stalled.pop(0))

    @precondition(lambda self: len(self.driver.members) > 1)
    @rule(data=st.data())
    def leases_run_out(self, data: Any) -> None:
        self.driver.expire(self._member(data).worker)

    @precondition(lambda self: self.driver.model.groups)
    @rule(data=st.data(), resumed=st.booleans())
    def pause(self, data: Any, resumed: bool) -> None:
        """Pause a group or all groups. Resume them at once or in a later step."""
        group = data.draw(st.sampled_from((*sorted(self.driver.model.groups), None)))
        self.driver.stand_still(group, paused=True)
        if resumed:
            for member in list(self.driver.members):
                self.driver.poll(member, 2, UNTOLD)
            self.driver.stand_still(group, paused=False)

    @precondition(lambda self: self.driver.model.paused)
    @rule(data=st.data())
    def resume(self, data: Any) -> None:
        group = data.draw(st.sampled_from((*sorted(self.driver.model.paused), None)))
        self.driver.stand_still(group, paused=False)

    @precondition(lambda self: self.driver.model.groups and self.driver.answers)
    @rule(data=st.data())
    def reset(self, data: Any) -> None:
        group = data.draw(st.sampled_from(sorted(self.driver.model.groups)))
        places = ["latest", "earliest", *sorted(self.driver.model.log)[-LAST:]]
        # Draw a number: the log also depends on time, and a story must be repeatable.
        self.driver.reset(group, places[data.draw(st.integers(0, LAST + 1)) % len(places)])

    @precondition(lambda self: self.driver.answers)
    @rule(limit=st.sampled_from((None, None, 1, 2)), cut=st.one_of(st.none(), st.none(), st.integers(0, 12)))
    def redrive(self, limit: int | None, cut: int | None) -> None:
        self.driver.redrive(limit, cut)

    @precondition(lambda self: self.driver.answers)
    @rule(limit=st.sampled_from((None, 1)))
    def purge(self, limit: int | None) -> None:
        self.driver.purge(limit)

    def _member(self, data: Any) -> Member:
        member: Member = data.draw(st.sampled_from(self.driver.members))
        return member

    # Polling and answering

    @precondition(lambda self: self.driver.members)
    @rule(
        data=st.data(),
        count=st.integers(1, 5),
        due=dues,
        cut=cuts,
        patient=st.sampled_from((False,) * 5 + (True,)),
    )
    def poll(self, data: Any, count: int, due: frozenset[str], cut: int | None, patient: bool) -> None:
        member = self._member(data)
        patient = (
            patient and all(h.firm for h in self.driver.model.open_of(member.worker)) and not member.fenced
        )
        self.driver.poll(member, count, due, cut=cut, patient=patient)

    @precondition(lambda self: self.driver.members)
    @rule(data=st.data(), count=st.integers(1, 5), verbs=st.lists(verbs, max_size=4), delay=st.booleans())
    def work(self, data: Any, count: int, verbs: list[str], delay: bool) -> None:
        """Poll with all periodic work due and without a kill. Answer the first deliveries."""
        got = self.driver.poll(self._member(data), count, PERIODIC)
        answers = self.driver.answers[len(self.driver.answers) - len(got) :]
        for (delivery, handout), verb in zip(answers, verbs, strict=False):
            self.driver.answer(delivery, handout, verb, delay=delay)

    @precondition(lambda self: self.driver.answers)
    @rule(data=st.data(), verb=verbs, delay=st.booleans(), cut=short_cuts)
    def answer(self, data: Any, verb: str, delay: bool, cut: int | None) -> None:
        delivery, handout = self._delivery(data)
        self.driver.answer(delivery, handout, verb, delay=delay, cut=cut)

    @precondition(lambda self: self.driver.answers)
    @rule(data=st.data(), fails=st.sampled_from((False, False, True)), cut=short_cuts)
    def effect(self, data: Any, fails: bool, cut: int | None) -> None:
        delivery, handout = self._delivery(data)
        self.driver.effect(delivery, handout, fails=fails, cut=cut)

    @precondition(lambda self: self.driver.members and self.driver.answers)
    @rule(data=st.data(), count=st.integers(1, 5), cut=short_cuts)
    def ack_many(self, data: Any, count: int, cut: int | None) -> None:
        """Ack the last deliveries of one subscriber in any state."""
        mine: dict[Worker, list[tuple[Delivery, Handout]]] = {}
        for pair in self.driver.answers:
            mine.setdefault(pair[1].worker, []).append(pair)
        members = [m for m in self.driver.members if m.worker in mine] or self.driver.members
        member: Member = data.draw(st.sampled_from(members))
        self.driver.ack_many(member, mine.get(member.worker, [])[-count:], cut)

    @precondition(lambda self: self.driver.answers)
    @rule(data=st.data())
    def visibility_runs_out(self, data: Any) -> None:
        self.driver.run_out(*self._delivery(data))

    @precondition(lambda self: any(h.firm for _, h in self.driver.answers))
    @rule(data=st.data())
    def its_handlers_hang(self, data: Any) -> None:
        """Let all deliveries of one subscriber expire. It gets them again one by one."""
        open_ones = [pair for pair in self.driver.answers if pair[1].firm]
        worker: Worker = data.draw(st.sampled_from([handout.worker for _, handout in open_ones]))
        for delivery, handout in open_ones:
            if handout.worker is worker:
                self.driver.run_out(delivery, handout)
        for member in self.driver.members:
            if member.worker is worker:
                self.driver.poll(member, 1, PERIODIC)
                return

    def _delivery(self, data: Any) -> tuple[Delivery, Handout]:
        """Select a delivery: open, void, or one of the last."""
        answers = self.driver.answers
        flying = [pair for pair in answers if not (pair[1].answer or pair[1].void)]
        void = [pair for pair in answers if pair[1].void and not pair[1].answer]
        return data.draw(st.sampled_from([*flying, *void[-LAST:], *answers[-LAST:]]))  # type: ignore[no-any-return]

    # Time

    @precondition(lambda self: self.driver.model.are_waiting())
    @rule()
    def delays_pass(self) -> None:
        self.driver.wait()

    @precondition(lambda self: self.driver.members)
    @rule(data=st.data(), what=st.sampled_from(("idle", "settle", "collect", "collect")))
    def upkeep(self, data: Any, what: str) -> None:
        """Run the idle work of a worker."""
        member = self._member(data)
        if what == "idle":
            self.driver.idle(member)
        else:
            self.driver.settle(member)
        if what == "collect":
            self.driver.collect()

    # Checks

    @invariant()
    def log_and_letters_are_right(self) -> None:
        self.driver.look()

    def teardown(self) -> None:
        """Repair all faults and deliver the remaining messages, unless a step has already failed."""
        if not hasattr(self, "driver"):
            return
        failed = sys.exc_info()[1]
        try:
            if failed is None:
                drain(self.driver)
        except BaseException as error:
            failed = error
            raise
        finally:
            if failed is not None and type(failed).__name__ != "StopTest":
                self._tell(f"{type(failed).__name__}: {failed}")
            self.driver.leave()

    def _tell(self, failure: str) -> None:
        story = "\n".join([*self.driver.story, failure, ""])
        note(story)
        if path := os.environ.get("MQUEUE_MODEL_STORIES"):
            with Path(path).open("a") as file:
                file.write(f"{story}\n")
