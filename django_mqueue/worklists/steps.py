"""The steps of a work item: each is one compare-and-set, a row of its history, and a message, in one transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error, connections, models, transaction

from ..exceptions import MQueueError
from ..policy.durations import moment, moment_ms, to_ms
from ..policy.encoding import check_whole_numbers
from ..service.publish import publish
from ..store.connection.errors import is_retriable
from ..store.connection.session import latest_rows
from ..store.queries.group_rows import now_ms
from . import states
from .rights import refusal, verbs_for
from .states import ASSIGNED, FINISH, FINISHED, HAND_BACK, TAKE, ItemChanged, TransitionNotAllowed

if TYPE_CHECKING:
    from .models import WorkItem

logger = logging.getLogger("django_mqueue")

COMMENT_MAX = 4000
ERROR_MAX = 4000
NAME_MAX = 255
RETURN, DUE, REMIND, WORK = TIMERS = "return", "due", "remind", "work"
"""Kinds of the messages that the worklist sends to itself."""


def system_change(item: WorkItem, step: str, *, error: str = "", **values: Any) -> None:
    """Take a step as the program, without a check of state or permissions. ``error``: the text of a failure."""
    if error:
        values["error"] = error[:ERROR_MAX]
    change(item, step, None, "", {"error": values["error"]} if error else None, **values)


def record(
    item: WorkItem, step: str, by: Any, comment: str, before: str, data: Mapping[str, Any] | None = None
) -> None:
    """Write a step into the item's history, and publish it, in the caller's transaction."""
    if len(comment) > COMMENT_MAX:
        raise ValueError(f"comment may have at most {COMMENT_MAX:,} characters, not {len(comment):,}")
    actor = "" if by is None else by.get_username()[:NAME_MAX]
    details = dict(data or {})
    if item.assignee is not None:
        details |= {"assignee": item.assignee.get_username(), "assignee_id": item.assignee.pk}
    if item.team is not None:
        details["team"] = item.team.name
    item.steps.create(
        step=step,
        before=before,
        after=item.state,
        actor=by,
        actor_name=actor,
        comment=comment,
        data=details,
        at=moment(now_ms(item.using)),
    )
    payload = {
        "item": item.pk, "step": step, "before": before, "after": item.state, "by": actor, "comment": comment,
        "kind": item.kind, "title": item.title, "message": item.message_id, **details,
    }  # fmt: skip
    publish(item.topic, payload, key=str(item.pk), kind=step, using=item.using)


def send(item: WorkItem, kind: str, *, at: datetime | None = None) -> None:
    """Send the worklist's own handler a message about the item, now or at a time of the database's clock."""
    publish(
        item.topic, {"item": item.pk}, key=str(item.pk), id=timer_id(item, kind), kind=kind, group=item.topic,
        at=at, using=item.using,
    )  # fmt: skip


def send_due(item: WorkItem) -> None:
    """Send the messages of the due date, if there is one, and of the reminder before it."""
    if item.due_at is None:
        return
    send(item, DUE, at=item.due_at)
    if (before := item.rules.options.remind_ms) is not None:
        send(item, REMIND, at=item.due_at - timedelta(milliseconds=before))


def timer_id(item: WorkItem, kind: str) -> str:
    """Return the id of the newest message of this kind about the item. A message with another id is out of date."""
    if kind not in (DUE, REMIND):
        return f"{kind} {item.pk} {item.version}"
    return f"{kind} {item.pk} {moment_ms('due_at', item.due_at)}"


def bulk(items: Iterable[WorkItem], verb: str, **arguments: Any) -> dict[int, str]:
    """Take a step with each item, in a transaction of its own. Return why steps were refused, by the items' numbers.

    ``verb``: the name of a method of ``WorkItem``, such as ``"assign"``. ``arguments``: its arguments, for all items.
    Errors of ``work`` are also logged. Raises ``ValueError`` for an unknown verb, and database errors other than
    deadlocks and lock wait timeouts.
    """
    if verb not in states.VERBS:
        raise ValueError(f"verb must be one of {', '.join(states.VERBS)}, not {verb!r}")
    refused = {}
    for item in items:
        item.failed_in_work = False
        try:
            getattr(item, verb)(**arguments)
        except Exception as problem:
            is_refusal = isinstance(problem, (MQueueError, ValueError))
            if item.failed_in_work or not (is_refusal or isinstance(problem, Error)):
                logger.exception("step of a work item failed: %s %s", verb, item.pk)
            if is_refusal:
                refused[item.pk] = str(problem)
            elif not isinstance(problem, Error):
                refused[item.pk] = f"item {item.pk}: {type(problem).__name__}: {problem}"
            elif is_retriable(problem):
                refused[item.pk] = f"item {item.pk} is locked by another step: try again"
            else:
                raise
    return refused


def check_json(argument: str, value: Any) -> None:
    """Raise ``TypeError`` or ``ValueError`` if the value cannot be stored as JSON, or not exactly."""
    try:
        json.dumps(value, cls=DjangoJSONEncoder, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} must be a JSON value: {error}") from error
    check_whole_numbers(argument, value)


def related(item: WorkItem, field: str) -> Any:
    """Return the model of users or of their groups."""
    return item._meta.get_field(field).related_model


def in_future(item: WorkItem, argument: str, given: datetime | timedelta | float) -> datetime:
    now = now_ms(item.using)
    at = moment_ms(argument, given) if isinstance(given, datetime) else now + to_ms(argument, given)
    if at <= now:
        raise ValueError(f"{argument} must lie in the future, not {given!r}")
    return moment(at)


def check(item: WorkItem, verb: str, by: Any) -> None:
    """Raise ``TransitionNotAllowed`` if the state, or the permissions of ``by``, do not allow the verb."""
    if by is None and verb in (TAKE, HAND_BACK):
        raise TypeError("by must be the user who does this")
    if by is not None and not isinstance(by, related(item, "assignee")):
        raise TypeError(f"by must be a user, not {type(by).__name__}")
    declared = item.rules.options.states
    if not states.is_allowed(declared, verb, item.state):
        allowed = ", ".join(states.allowed_in(declared, verb)) or "no state"
        owner = ""
        if item.state == ASSIGNED and item.assignee is not None:
            owner = f" to {item.assignee.get_username()}"
        raise TransitionNotAllowed(
            f"item {item.pk} is {item.state}{owner}: {verb} is allowed in {allowed}; allowed now:"
            f" {_allowed_now(item, by)}"
        )
    if by is not None and (reason := refusal(item, verb, by)):
        raise TransitionNotAllowed(
            f"{by.get_username()} may not {verb} item {item.pk}: {reason}; allowed now: {_allowed_now(item, by)}"
        )


def _allowed_now(item: WorkItem, by: Any) -> str:
    """Return the verbs that are allowed now, for a text."""
    if by is not None:
        return ", ".join(verbs_for(item, by)) or "no step"
    declared = item.rules.options.states
    return ", ".join(verb for verb in states.VERBS if states.is_allowed(declared, verb, item.state))


def finish(item: WorkItem, by: Any, result: Any, comment: str, *, is_automated: bool = False) -> None:
    """Finish an item. The compare-and-set comes before ``work``, so only one of two callers runs ``work``.

    ``is_automated``: the handler does this, which needs no permission.
    """
    if not is_automated:
        check(item, FINISH, by)
    check_json("result", result)
    end = moment(now_ms(item.using))
    seconds = round((end - item.created_at).total_seconds(), 3)
    data: dict[str, Any] = {"result": result, "automated": is_automated, "seconds": seconds}

    def work() -> None:
        item.failed_in_work = True
        found = item.rules.work(item)
        item.failed_in_work = False
        check_json("the result of work", found)
        if result is None and found is not None:
            _rows(item).filter(pk=item.pk).update(result=found)
            item.result = data["result"] = found

    change(
        item, "finished", by, comment, data, first=work, state=FINISHED, is_automated=is_automated, error="",
        is_open=False, ended_at=end, result=result,
    )  # fmt: skip


def change(
    item: WorkItem,
    step: str,
    by: Any,
    comment: str,
    data: dict[str, Any] | None = None,
    *,
    first: Callable[[], None] | None = None,
    then: Callable[[], None] | None = None,
    **values: Any,
) -> None:
    """Change an item, call ``first``, record the step, and call ``then``, in one transaction.

    If anything fails, the transaction is rolled back, and the object has its earlier values.
    """
    before, old = item.state, {name: getattr(item, name) for name in (*values, "version")}
    try:
        with transaction.atomic(using=item.using):
            _compare_and_set(item, **values)
            for name, value in {**values, "version": item.version + 1}.items():
                setattr(item, name, value)
            if first is not None:
                first()
            record(item, step, by, comment, before, data)
            if then is not None:
                then()
    except BaseException:
        for name, value in old.items():
            setattr(item, name, value)
        raise


def _compare_and_set(item: WorkItem, **values: Any) -> None:
    """Change the item's row if no other step has changed it. Raise ``ItemChanged`` otherwise."""
    with latest_rows(connections[item.using]):
        same = _rows(item).filter(pk=item.pk, version=item.version)
        if same.update(version=item.version + 1, **values):
            return
    current = locked(item)
    assignee = current.assignee if current.state == ASSIGNED else None
    owner = f" to {assignee.get_username()}" if assignee is not None else ""
    raise ItemChanged(
        f"item {item.pk} was changed meanwhile: it is {current.state}{owner}; nothing was changed"
    )


def locked(item: WorkItem) -> WorkItem:
    """Lock the item's row, and return its newest state, also at REPEATABLE READ."""
    with latest_rows(connections[item.using]):
        found = _rows(item).select_for_update().filter(pk=item.pk).first()
    if found is None:
        raise ItemChanged(f"item {item.pk} was deleted")
    return found


def _rows(item: WorkItem) -> models.QuerySet[WorkItem]:
    return type(item)._base_manager.using(item.using)
