"""Call the queue, and report each call and its result to the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from django_mqueue import (
    Delivery,
    FencedSubscription,
    NotRegistered,
    StaleDelivery,
    Subscription,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import Message
from tests.support.subscribers import collect, in_log, settle

from . import time_passing
from .publisher import Publisher, partition_of
from .things import Breach, Handout, Worker

BATCH_SIZE = 2

VERBS: dict[str, Callable[[Delivery, float], object]] = {
    "ack": lambda delivery, _: delivery.ack(),
    "nack": lambda delivery, delay: delivery.nack(delay=delay, error="failed"),
    "reject": lambda delivery, _: delivery.reject("rejected"),
    "postpone": lambda delivery, delay: delivery.postpone(delay),
    "extend": lambda delivery, _: delivery.extend(time_passing.HOUR),
}


@dataclass(eq=False)
class Member:
    """A subscriber and the model's view of it. ``fenced``: a newer subscriber has taken its name."""

    worker: Worker
    subscription: Subscription
    fenced: bool = False


@dataclass
class Driver(Publisher):
    """The driver of groups, subscribers and deliveries."""

    members: list[Member] = field(default_factory=list)
    answers: list[tuple[Delivery, Handout]] = field(default_factory=list)
    absent: list[Worker] = field(default_factory=list)

    # Groups and members

    def subscribe(self, group: str, *, latest: bool) -> None:
        self.tell(f"subscribe {group} {'latest' if latest else 'earliest'}")
        self.model.subscribed(
            group, subscribe(self.topic, group, "latest" if latest else "earliest"), latest=latest
        )

    def unsubscribe(self, group: str) -> None:
        self.tell(f"unsubscribe {group}")
        self.model.unsubscribed(group, unsubscribe(self.topic, group))
        self.members = [m for m in self.members if m.worker.group != group or not m.fenced]

    def open(self, group: str, name: str, *, strict: bool) -> None:
        """Open a subscriber. It supersedes a subscriber that already has the name."""
        new = group not in self.model.groups
        self.tell(f"open {group}/{name}{' strict' if strict else ''}")
        subscription = Subscription(
            self.topic,
            group,
            name,
            strict=strict,
            batch_size=BATCH_SIZE,
            max_attempts=self.model.max_attempts,
            visibility_timeout=4 * time_passing.HOUR,
        ).open()
        self.model.subscribed(group, new)
        for worker in self._named(group, name):
            self.model.superseded(worker)
        for member in self.members:
            member.fenced = member.fenced or (member.worker.group, member.worker.name) == (group, name)
        self.members.append(Member(Worker(group, name, strict, BATCH_SIZE), subscription))

    def close(self, member: Member) -> None:
        self.tell(f"close {self.name(member)}")
        member.subscription.close()
        self.members.remove(member)
        self.model.gone(member.worker)

    def stall(self, member: Member, *, noticed: bool) -> None:
        """Stop polling a subscriber. ``noticed``: its leases and its heartbeat have also expired."""
        self.tell(f"stall {self.name(member)}{', leases ran out' if noticed else ''}")
        self.members.remove(member)
        self.absent.append(member.worker)
        if noticed:
            self.notice(member.worker)

    def notice(self, worker: Worker) -> None:
        time_passing.heartbeat_passes(self.topic, worker.group, worker.name)
        self.expire(worker)

    def expire(self, worker: Worker) -> None:
        """Let the leases of a worker expire while it may still have them in memory."""
        self.tell(f"leases of {worker.group}/{worker.name} run out")
        time_passing.leases_pass(self.topic, worker.group, worker.name)
        for other in self._named(worker.group, worker.name):
            self.model.leases_ran_out(other)

    def _named(self, group: str, name: str) -> set[Worker]:
        """Return all workers that have or had this name."""
        all_of_them = {h.worker for h in self.model.handouts} | {m.worker for m in self.members}
        return {worker for worker in all_of_them if (worker.group, worker.name) == (group, name)}

    def name(self, member: Member) -> str:
        return f"{member.worker.group}/{member.worker.name}{' (fenced)' if member.fenced else ''}"

    # Polling and answering

    def poll(
        self,
        member: Member,
        count: int,
        due: Collection[str],
        *,
        cut: int | None = None,
        patient: bool = False,
    ) -> list[Delivery]:
        worker, subscription = member.worker, member.subscription
        time_passing.make_due(subscription, due)
        if patient:
            self._be_patient(member)
        got: list[Delivery] = []
        refused = ""
        try:
            self.attempted("poll", lambda: got.extend(subscription.poll(count)), cut)
        except (NotRegistered, FencedSubscription) as error:
            refused = type(error).__name__
        self.tell(
            f"poll {self.name(member)} {count} {'all' if len(due) == len(time_passing.PERIODIC) else sorted(due)}"
            f"{' patiently' if patient else ''}{'' if cut is None else f' killed before {cut}'}: "
            f"{refused or [(d.offset, d.attempt) for d in got]}"
        )
        self._check_refusal(member, refused)
        if "renew" in due and not refused:
            worker.expired = False
        self.look()  # The poll dead-letters messages before it returns deliveries.
        for delivery in got:
            alone = delivery.status.alone
            handout = self.model.delivered(
                worker, delivery.offset, delivery.attempt, alone=alone, beside=patient
            )
            stored = self.model.log[delivery.offset]
            if (delivery.id, partition_of(delivery.key, delivery.id)) != (stored.id, stored.partition) or (
                delivery.payload != {"id": delivery.id, "key": delivery.key}
            ):
                raise Breach(f"{delivery} is not what was stored: {stored}")
            self.answers.append((delivery, handout))
        return got

    def _check_refusal(self, member: Member, refused: str) -> None:
        if refused == "NotRegistered" and member.worker.group in self.model.groups:
            raise Breach(f"{self.name(member)} was told that its group is not registered")
        if refused == "FencedSubscription":
            if not member.fenced:
                raise Breach(f"{self.name(member)} was told that it is superseded")
            member.subscription.close()
            self.members.remove(member)

    def _be_patient(self, member: Member) -> None:
        """Let ten seconds pass for the member. A message that runs alone then no longer runs alone."""
        time_passing.ten_seconds_pass(member.subscription)
        for handout in self.model.open_of(member.worker):
            handout.alone = False

    def answer(
        self, delivery: Delivery, handout: Handout, verb: str, *, delay: bool, cut: int | None = None
    ) -> None:
        expected = self.model.expects(handout, verb)
        what = f"{verb}{' with delay' if delay else ''} {handout.worker.group}/{handout.worker.name} {handout.offset}"
        accepted: list[bool] = []

        def call() -> None:
            try:
                accepted.append(bool(VERBS[verb](delivery, time_passing.HOUR if delay else 0)))
            except StaleDelivery:
                accepted.append(False)

        self.tell(f"{what} #{handout.attempt}: should be {expected.value}")
        if self.attempted(verb, call, cut):
            self.story[-1] += f", was {accepted[0]}"
            self.model.answered(handout, verb, accepted[0], delay=delay)

    def ack_many(
        self, member: Member, chosen: Sequence[tuple[Delivery, Handout]], cut: int | None = None
    ) -> None:
        stale: set[int] = set()

        def call() -> None:
            try:
                member.subscription.ack([delivery for delivery, _ in chosen])
            except StaleDelivery as error:
                stale.update(id(delivery) for delivery in error.stale)

        self.tell(f"ack {self.name(member)} {[h.offset for _, h in chosen]}")
        if self.attempted("ack", call, cut):
            for delivery, handout in chosen:
                self.model.answered(handout, "ack", id(delivery) not in stale)

    def run_out(self, delivery: Delivery, handout: Handout) -> None:
        self.tell(f"visibility of {handout.worker.group}/{handout.worker.name} {handout.offset} runs out")
        time_passing.visibility_passes(delivery)
        handout.ran_out = True

    # Periodic work

    def settle(self, member: Member) -> None:
        self.tell(f"settle by {self.name(member)}")
        settle(member.subscription)

    def collect(self) -> None:
        self.tell("collect")
        collect(self.topic)

    def wait(self) -> None:
        self.tell("delays are over")
        time_passing.delays_pass(self.topic, [m.subscription for m in self.members])
        self.model.waited()

    def idle(self, member: Member) -> None:
        self.tell(f"hours pass idly for {self.name(member)}")
        time_passing.hours_pass_idly(member.subscription)

    def look(self) -> None:
        """Compare the log and the dead letters with the model."""
        self.model.found_in_log(in_log(self.topic))
        self.model.found_letters(self.found_letters())

    def found_letters(self) -> list[tuple[int, str, int]]:
        """Return (original offset, failed group, failures) of each dead letter."""
        letters = Message.objects.filter(topic=f"{self.topic}_dlq").values_list("message_id", "failure_count")
        found = []
        for id, count in letters:
            offset, group = id.split(":")
            found.append((int(offset), group, int(count or 0)))
        return found

    def leave(self) -> None:
        """Roll back transactions that are still open, and close the connection of the killer."""
        for held in self.held:
            held.transaction.rollback()
        self.killer.close()
