"""The steps of a work item: each is one compare-and-set, a row of its history, and a message, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction

from ..policy.durations import moment, moment_ms, to_ms
from ..service.publish import publish
from ..store.queries.group_rows import now_ms
from . import states
from .rights import refusal, verbs_for
from .states import (
    ASSIGN,
    ASSIGNED,
    CANCEL,
    CANCELLED,
    COMMENT,
    DELAY,
    DELAYED,
    FINISH,
    FINISHED,
    HAND_BACK,
    MOVE,
    TAKE,
    UNASSIGN,
    UNASSIGNED,
    ItemChanged,
    TransitionNotAllowed,
)

if TYPE_CHECKING:
    from .models import WorkItem

COMMENT_MAX = 4000
ERROR_MAX = 4000
RETURN, DUE, REMIND, WORK = TIMERS = "return", "due", "remind", "work"
"""Kinds of the messages that the worklist sends to itself."""


def take(item: WorkItem, by: Any, comment: str) -> None:
    _check(item, TAKE, by)
    _change(item, "taken", by, comment, state=ASSIGNED, assignee=by, delayed_until=None)


def assign(item: WorkItem, to: Any, by: Any, comment: str) -> None:
    """Assign an item to a user, or put it among the unassigned items of a group of users."""
    _check(item, ASSIGN, by)
    user_model = item._meta.get_field("assignee").related_model
    team_model = item._meta.get_field("team").related_model
    values: dict[str, Any] = {"delayed_until": None}
    if isinstance(to, user_model):
        if item.state in item.rules.options.states:
            values = {"assignee": to}  # The item keeps its declared state.
        else:
            values |= {"assignee": to, "state": ASSIGNED}
    elif isinstance(to, team_model):
        values |= {"assignee": None, "team": to, "state": UNASSIGNED}
    else:
        raise TypeError(f"to must be a user or a group of users, not {type(to).__name__}")
    if to.pk is None:
        raise ValueError("to must be saved")
    _change(item, "assigned", by, comment, **values)


def unassign(item: WorkItem, by: Any, comment: str) -> None:
    _check(item, UNASSIGN, by)
    _change(item, "unassigned", by, comment, state=UNASSIGNED, assignee=None, delayed_until=None)


def hand_back(item: WorkItem, by: Any, comment: str) -> None:
    _check(item, HAND_BACK, by)
    _change(item, "handed_back", by, comment, state=UNASSIGNED, assignee=None)


def delay(item: WorkItem, until: datetime | timedelta | float, by: Any, comment: str) -> None:
    _check(item, DELAY, by)
    now = now_ms(item.using)
    at = moment_ms("until", until) if isinstance(until, datetime) else now + to_ms("until", until)
    if at <= now:
        raise ValueError(f"until must lie in the future, not {until!r}")
    with transaction.atomic(using=item.using):
        _change(item, "delayed", by, comment, state=DELAYED, delayed_until=moment(at))
        send(item, RETURN, at=moment(at))


def move(item: WorkItem, state: str, by: Any, comment: str) -> None:
    _check(item, MOVE, by)
    possible = states.moves(item.rules.options.states, item.state)
    if state not in possible:
        raise TransitionNotAllowed(
            f"item {item.pk} is {item.state}: it cannot move to {state!r}; allowed are {', '.join(possible)}"
        )
    values: dict[str, Any] = {"state": state}
    if state == UNASSIGNED:
        values["assignee"] = None
    elif state == ASSIGNED and item.assignee_id is None:
        values["state"] = UNASSIGNED
    _change(item, "moved", by, comment, **values)


def cancel(item: WorkItem, by: Any, comment: str) -> None:
    _check(item, CANCEL, by)
    _end(item, "cancelled", by, comment, state=CANCELLED, delayed_until=None)


def finish(item: WorkItem, by: Any, result: Any, comment: str) -> None:
    """Finish an item: first the compare-and-set, so that one of two callers runs ``work``, then ``work``."""
    _check(item, FINISH, by)
    _finish(item, by, result, comment, is_automated=False)


def finish_by_handler(item: WorkItem) -> None:
    """Do the work of an automated item, and finish it, in the caller's transaction."""
    _finish(item, None, None, "", is_automated=True)


def comment(item: WorkItem, text: str, by: Any) -> None:
    """Add a comment. It changes nothing else, so it never conflicts with another step."""
    _check(item, COMMENT, by)
    if not text.strip():
        raise ValueError("text must not be empty")
    with transaction.atomic(using=item.using):
        record(item, "commented", by, text, item.state)


def system_change(item: WorkItem, step: str, *, error: str = "", **values: Any) -> None:
    """Take a step that no user takes. ``error``: the text of a failure."""
    if error:
        values["error"] = error[:ERROR_MAX]
    _change(item, step, None, "", data={"error": error[:ERROR_MAX]} if error else None, **values)


def record(
    item: WorkItem, step: str, by: Any, comment: str, before: str, data: Mapping[str, Any] | None = None
) -> None:
    """Write a step into the item's history, and publish it, in the caller's transaction."""
    if len(comment) > COMMENT_MAX:
        raise ValueError(f"comment may have at most {COMMENT_MAX:,} characters, not {len(comment):,}")
    actor = "" if by is None else by.get_username()
    details = dict(data or {})
    if item.assignee is not None:
        details["assignee"] = item.assignee.get_username()
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
        item.topic, {"item": item.pk}, key=str(item.pk), id=f"{kind} {item.pk} {item.version}", kind=kind,
        group=item.topic, at=at, using=item.using,
    )  # fmt: skip


def _check(item: WorkItem, verb: str, by: Any) -> None:
    """Raise ``TransitionNotAllowed`` if the state, or the permissions of ``by``, do not allow the verb."""
    declared = item.rules.options.states
    if not states.is_allowed(declared, verb, item.state):
        allowed = ", ".join(states.allowed_in(declared, verb)) or "no state"
        possible = ", ".join(one for one in states.VERBS if states.is_allowed(declared, one, item.state))
        raise TransitionNotAllowed(
            f"item {item.pk} is {item.state}: {verb} is allowed in {allowed}; allowed now are {possible}"
        )
    if by is None:
        if verb in (TAKE, HAND_BACK):
            raise TypeError("by must be the user who does this")
        return
    if reason := refusal(item, verb, by):
        possible = ", ".join(verbs_for(item, by)) or "no step"
        raise TransitionNotAllowed(
            f"{by.get_username()} may not {verb} item {item.pk}: {reason}; allowed now: {possible}"
        )


def _end(
    item: WorkItem, step: str, by: Any, comment: str, data: dict[str, Any] | None = None, **values: Any
) -> None:
    now = moment(now_ms(item.using))
    _change(item, step, by, comment, data, is_open=False, ended_at=now, **values)


def _finish(item: WorkItem, by: Any, result: Any, comment: str, *, is_automated: bool) -> None:
    check_json("result", result)
    before, values = item.state, {"state": FINISHED, "is_automated": is_automated, "error": ""}
    with transaction.atomic(using=item.using):
        end = moment(now_ms(item.using))
        values |= {"is_open": False, "ended_at": end}
        _compare_and_set(item, **values)
        found = item.rules.work(item)
        given = found if result is None else result
        check_json("the result of work", given)
        if given is not None:
            _rows(item).filter(pk=item.pk).update(result=given)
        after = {**values, "result": given, "version": item.version + 1}
        seconds = round((end - item.created_at).total_seconds(), 3)
        data = {"result": given, "automated": is_automated, "seconds": seconds}
        _recorded(item, after, "finished", by, comment, before, data)


def _change(
    item: WorkItem, step: str, by: Any, comment: str, data: dict[str, Any] | None = None, **values: Any
) -> None:
    before = item.state
    with transaction.atomic(using=item.using):
        _compare_and_set(item, **values)
        _recorded(item, {**values, "version": item.version + 1}, step, by, comment, before, data)


def _recorded(
    item: WorkItem, values: Mapping[str, Any], step: str, by: Any, comment: str, before: str, data: Any
) -> None:
    """Record a step. If this fails, the transaction is rolled back, and the object keeps its values from before."""
    old = {name: getattr(item, name) for name in values}
    _set(item, values)
    try:
        record(item, step, by, comment, before, data)
    except BaseException:
        _set(item, old)
        raise


def _set(item: WorkItem, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(item, name, value)


def _compare_and_set(item: WorkItem, **values: Any) -> None:
    """Change the item's row if no other step has changed it. Raise ``ItemChanged`` otherwise."""
    same = _rows(item).filter(pk=item.pk, version=item.version)
    if same.update(version=item.version + 1, **values):
        return
    # A locking read returns the newest state, also at REPEATABLE READ.
    now = _rows(item).select_for_update().select_related("assignee").filter(pk=item.pk).first()
    if now is None:
        raise ItemChanged(f"item {item.pk} was deleted")
    assignee = now.assignee if now.state == ASSIGNED else None
    owner = f" to {assignee.get_username()}" if assignee is not None else ""
    raise ItemChanged(f"item {item.pk} was changed meanwhile: it is {now.state}{owner}; nothing was changed")


def _rows(item: WorkItem) -> models.QuerySet[WorkItem]:
    return type(item)._base_manager.using(item.using)


def check_json(argument: str, value: Any) -> None:
    """Raise ``TypeError`` if the value cannot be stored as JSON."""
    try:
        json.dumps(value, cls=DjangoJSONEncoder, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} must be a JSON value: {error}") from error
