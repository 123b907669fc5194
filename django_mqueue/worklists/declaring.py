"""The decorator ``@worklist``: it checks the options, and registers the handlers of a worklist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from .. import conf
from ..messages import Message
from ..policy.backoff import ExponentialBackoff, RetryPolicy, policy_of
from ..policy.durations import to_ms
from ..policy.names import check_publish_topic
from ..protocol.delivery import Delivery
from ..service.registration import Start, check_names, check_start
from ..service.subscription import check_count
from ..service.topics import Topic, internal_topics
from ..workers.registry import IN_FLIGHT, Handler
from ..workers.registry import add as add_handler
from . import automation, intake, registry, steps
from .registry import Options, Worklist
from .states import State, WorklistError, declared

Class = TypeVar("Class", bound=type[Worklist])
ATTRIBUTE_MAX = 64
HANDLER_ATTEMPTS = 1000
"""The maximum of ``max_attempts``. The items' handler has this limit, and ``limits_of`` lowers it by message."""


def worklist(
    name: str,
    *,
    source: str | Topic,
    states: Sequence[State | str] = (),
    due: float | timedelta | None = None,
    remind: float | timedelta | None = None,
    escalate_to: str = "",
    attributes: Sequence[str] = (),
    max_attempts: int = 3,
    retry: RetryPolicy | Sequence[float | timedelta] | None = ExponentialBackoff(),  # noqa: B008
    visibility_timeout: float | timedelta = 60,
    max_runtime: float | timedelta | None = None,
    start: Start = "earliest",
) -> Callable[[Class], Class]:
    """Declare a worklist, in a module ``worklists.py`` of an installed app. Then run ``migrate`` for its permissions.

    ``runconsumer`` makes an item from each message of ``source``.

    - ``name``: lower-case letters, digits and underscores. Each step is published to the topic ``worklist.<name>``.
    - ``source``: the topic whose messages become items.
    - ``states``: further states of its items, as ``State`` or as names, such as ``"review"``.
    - ``due``: seconds (or a ``timedelta``) until an item is overdue. Override ``Worklist.due`` to vary it.
    - ``remind``: seconds (or a ``timedelta``) before the due date. Then the step ``reminded`` is published.
    - ``escalate_to``: the name of the group of users that gets overdue items. Or override ``Worklist.escalate``.
    - ``attributes``: names of values by which ``find`` finds items.
    - ``max_attempts``, ``retry``, ``visibility_timeout``, ``max_runtime``: for ``work`` of automated items, as for
      ``@consumer``. After the last failed attempt, the item is unassigned, with the error.
    - ``start``: which messages of ``source`` become items: ``"earliest"`` for all that the log still holds, or as for
      ``subscribe``.

    Raises ``TypeError`` or ``ValueError`` for invalid options, ``WorklistError`` if another class has the name, and
    ``HandlerError`` if the source has another handler for the group ``worklist.<name>``.
    """
    registry.check_name(name)
    topic = check_publish_topic(registry.topic_of(name), conf.dead_letter_suffixes())
    check_names(str(source), topic)
    check_count("max_attempts", max_attempts)
    if max_attempts > HANDLER_ATTEMPTS:
        raise ValueError(f"max_attempts must be at most {HANDLER_ATTEMPTS}, not {max_attempts}")
    check_start(start)
    if isinstance(attributes, str) or not all(isinstance(one, str) and one for one in attributes):
        raise TypeError(f"attributes must be a sequence of names, not {attributes!r}")
    if long := [one for one in attributes if len(one) > ATTRIBUTE_MAX]:
        raise ValueError(
            f"the name of an attribute may have at most {ATTRIBUTE_MAX} characters, not {long[0]!r}"
        )
    options = Options(
        source=str(source),
        states=declared(states),
        due_ms=None if due is None else to_ms("due", due),
        remind_ms=None if remind is None else to_ms("remind", remind),
        escalate_to=escalate_to,
        attributes=tuple(attributes),
        max_attempts=max_attempts,
        retry=policy_of(retry),
        visible_ms=to_ms("visibility_timeout", visibility_timeout, least=0.001),
        max_runtime=None if max_runtime is None else to_ms("max_runtime", max_runtime, least=0.001) / 1000,
        start=start,
    )

    def declare(cls: Class) -> Class:
        if not (isinstance(cls, type) and issubclass(cls, Worklist)):
            raise TypeError(f"@worklist needs a subclass of Worklist, not {cls!r}")
        if "options" in vars(cls):
            raise WorklistError(
                f"{cls.__qualname__} is worklist {cls.name!r} already: declare a subclass of it"
            )
        cls.name, cls.options = name, options
        instance = cls()
        registry.add(instance)

        def make(delivery: Delivery) -> None:
            intake.make_item(instance, delivery)

        def react(delivery: Delivery) -> None:
            automation.handle(instance, delivery)

        limits = automation.TIMER_LIMITS
        internal_topics.add(topic)
        conf.repeats[topic] = options.source
        add_handler(Handler(
            make, options.source, topic, f"worklist {name}: its source", batch_size=IN_FLIGHT, concurrency=None,
            strict=False, max_attempts=limits.max_attempts, retry=limits.retry, visible_ms=options.visible_ms,
            start=options.start, atomic=True,
        ))  # fmt: skip
        add_handler(Handler(
            react, topic, topic, f"worklist {name}: its items", batch_size=IN_FLIGHT, concurrency=None,
            strict=False, max_attempts=HANDLER_ATTEMPTS, retry=limits.retry, visible_ms=options.visible_ms,
            start="earliest", atomic=True, max_runtime=options.max_runtime, filter=_is_own,
            limits_of=partial(automation.limits_of, instance),
            after_failure=partial(automation.after_failure, instance),
        ))  # fmt: skip
        return cls

    return declare


def _is_own(message: Message) -> bool:
    return message.kind in steps.TIMERS
