"""What handlers came to, told to the database: one commit for all acks of a group, one for each failure."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..exceptions import StaleDelivery
from ..service.answering import Answering
from ..service.delivery import Delivery
from ..service.engine import Engine
from .calling import Outcome
from .registry import Handler

logger = logging.getLogger("django_mqueue")


class Answers:
    """Outcomes that wait for their answer. ``counts`` says what became of messages, by verb."""

    def __init__(self, handlers: Mapping[Engine, Handler]) -> None:
        self.handlers = handlers
        self.finished: list[Outcome] = []
        self.counts: Counter[str] = Counter()
        self._handler_of: dict[Answering, Handler] = {e.answering: handler for e, handler in handlers.items()}
        self._visible_at = -math.inf

    def give(self, ahead: Sequence[Delivery], start: Callable[[Delivery], None]) -> None:
        """Answer all outcomes; ``ahead`` were claimed ahead, and each is given to ``start`` once that is noted.

        If the connection fails on the way, what was not answered still waits.
        """
        for engine in self.handlers:
            mine = engine.answering
            acks = [o for o in self.finished if o.verb == "ack" and o.delivery.hold.answering is mine]
            starting = [d for d in ahead if d.hold.answering is mine]
            if acks or starting:
                self._ack(engine, acks, starting)
                for delivery in starting:
                    start(delivery)
        for outcome in [o for o in self.finished if o.verb != "ack"]:
            self._answer(outcome)
            self.finished.remove(outcome)

    def _ack(self, engine: Engine, acks: list[Outcome], starting: list[Delivery]) -> None:
        try:
            engine.answering.ack([o.delivery for o in acks], starting)
        except StaleDelivery as stale:
            logger.warning("%s: handled, but %s", self.handlers[engine].name, stale)
        answered = {id(outcome) for outcome in acks}
        self.finished = [o for o in self.finished if id(o) not in answered]
        self.counts["ack"] += sum(o.delivery.hold.answer == "ack" for o in acks)

    def _answer(self, outcome: Outcome) -> None:
        delivery, name = outcome.delivery, self._handler_of[outcome.delivery.hold.answering].name
        try:
            if outcome.verb == "nack":
                delivery.nack(delay=outcome.delay, error=outcome.error)
            elif outcome.verb == "reject":
                delivery.reject(outcome.error)
            else:
                delivery.postpone(outcome.delay)
        except StaleDelivery as stale:
            logger.warning("%s: %s", name, stale)
            return
        dead = delivery.hold.dead_lettered
        self.counts["dead-letter" if dead else outcome.verb] += 1
        if dead or outcome.verb == "nack":
            what = "dead-lettered" if dead else f"again in {outcome.delay:.3g} s"
            first = outcome.error.partition("\n")[0]
            logger.warning(
                "%s: %s@%s attempt %s failed, %s: %s",
                name, delivery.topic, delivery.offset, delivery.attempt, what, first,
                extra={"mqueue_key": delivery.key, "mqueue_id": delivery.id, "mqueue_group": delivery.group},
            )  # fmt: skip

    def keep_visible(self) -> None:
        """While handlers run, show how long they have their messages: extend what has used a third of its time.

        Not those of atomic handlers: their transactions may have read the rows that this would change.
        """
        now = time.monotonic()
        if now < self._visible_at:
            return
        self._visible_at = now + min(h.visible_ms for h in self.handlers.values()) / 6000
        for engine, handler in self.handlers.items():
            if handler.atomic:
                continue
            soon = engine.context.clock.now() + handler.visible_ms * 2 // 3
            aging = [d for d in list(engine.context.flying.values()) if d.hold.expires < soon]
            if aging:
                engine.answering.prolong(aging, handler.visible_ms)
