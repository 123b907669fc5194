"""The verbs of ``manage.py mqueue worklist``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error

from .. import conf
from ..browse.masking import masked
from ..command.selecting import add_limit
from ..command.verbs import parse_time
from ..exceptions import MQueueError
from ..printing import on_a_line
from . import figures, states
from .intake import message_of
from .models import WorkItem
from .registry import worklist_of
from .searching import find, first_due
from .steps import bulk

STEPS = {
    states.TAKE: "assign items to the user of --by",
    states.ASSIGN: "assign items to a user or a team",
    states.UNASSIGN: "take items from their user or the handler",
    states.HAND_BACK: "give items back, for the user of --by",
    states.FINISH: "do the work of items and finish them",
    states.DELAY: "delay items until a time",
    states.MOVE: "move items into another state",
    states.AUTOMATE: "give items to the handler",
    states.SET_DUE: "change the due date of items",
    states.CANCEL: "cancel items: end them without doing their work",
    states.COMMENT: "add a comment to items",
}
ARGUMENTS = {states.DELAY: "until", states.SET_DUE: "at", states.MOVE: "state", states.FINISH: "result"}


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list items, the first due first")
    listing.add_argument(
        "worklist", nargs="?", help="the name of the worklist; optional with --user or --team"
    )
    listing.add_argument(
        "--state", action="append", help="only this state; may be repeated (default: all open)"
    )
    listing.add_argument("--user", help="the name of the user to whom they are assigned")
    listing.add_argument("--team", help="the name of a group of users")
    listing.add_argument("--kind", help="only items of this kind")
    listing.add_argument("--overdue", action="store_true", help="only items whose due date has passed")
    add_limit(listing, "items", 50)
    show = verbs.add_parser("show", help="show one item with its history")
    show.add_argument("item", type=int, help="the number of the item")
    show.add_argument(
        "--unmask", action="store_true", help="show what the mask of the worklist's source hides"
    )
    summary = verbs.add_parser("figures", help="count open items, and what was finished by week and kind")
    summary.add_argument("worklist")
    summary.add_argument(
        "--fail-if-overdue",
        type=int,
        metavar="N",
        help="exit with 1 if N items or more are overdue, for monitoring",
    )
    for one in (listing, show, summary):
        one.add_argument("--json", action="store_true", help="print JSON")
    for verb, text in STEPS.items():
        _add_step(verbs.add_parser(verb.replace("_", "-"), help=text), verb)


def _add_step(parser: ArgumentParser, verb: str) -> None:
    parser.set_defaults(verb=verb)
    parser.add_argument("items", nargs="+", type=int, metavar="ITEM", help="the number of an item")
    parser.add_argument(
        "--by", required=verb in (states.TAKE, states.HAND_BACK),
        help="the user who does it; permissions are then checked",
    )  # fmt: skip
    parser.add_argument(
        "--comment", default="", required=verb == states.COMMENT, help="a text for the history"
    )
    if verb == states.ASSIGN:
        to = parser.add_mutually_exclusive_group(required=True)
        to.add_argument("--user", help="the name of a user")
        to.add_argument("--team", help="the name of a group of users")
    elif verb == states.DELAY:
        text = "until this time: ISO 8601, UTC unless it has a zone"
        parser.add_argument("--until", type=parse_time, required=True, help=text)
    elif verb == states.SET_DUE:
        text = "ISO 8601, UTC unless it has a zone; without it: no due date"
        parser.add_argument("--at", type=parse_time, help=text)
    elif verb == states.MOVE:
        parser.add_argument("--state", required=True, help="the state to move the items to")
    elif verb == states.FINISH:
        parser.add_argument("--result", help="a text to store as the result")


def run(options: dict[str, Any], write: Callable[[str], object]) -> list[str]:
    """Run a verb. Return an error text for the verb or for each refused step. An empty list means success."""
    problems: list[str] = []
    try:
        if options["verb"] in STEPS:
            for problem_text in _take_steps(options, write):
                problems.append(problem_text)  # One by one: a database error keeps the refusals before it.
            return problems
        found = {"list": _list, "show": _show, "figures": _figures}[options["verb"]](options)
        most = options.get("fail_if_overdue")
    except (MQueueError, ValueError) as problem:
        return [str(problem)]
    except Error as problem:
        return [*problems, f"database error: {problem}"]
    if options["json"]:
        write(json.dumps(found, cls=DjangoJSONEncoder, indent=2))
    else:
        for line in _lines(found):
            write(line)
    if most is not None and (overdue := found[0]["overdue"]) >= min(most, figures.COUNTED):
        return [
            f"{overdue}{'+' if overdue >= figures.COUNTED else ''} items of {options['worklist']} are overdue"
        ]
    return []


def _list(options: dict[str, Any]) -> list[dict[str, Any]]:
    items = find(
        options["worklist"], state=options["state"], open=None if options["state"] else True,
        assignee=_user(options["user"]), team=_team(options["team"]), kind=options["kind"], overdue=options["overdue"],
    )  # fmt: skip
    order = first_due(items, options["limit"])
    found = items.select_related("assignee", "team").in_bulk(order)
    return [_row(found[pk]) for pk in order if pk in found]


def _row(item: WorkItem) -> dict[str, Any]:
    return {
        "item": item.pk, "state": item.state, "title": item.title, "kind": item.kind,
        "user": item.assignee.get_username() if item.assignee is not None else None,
        "team": item.team.name if item.team is not None else None, "due": item.due_at, "created": item.created_at,
    }  # fmt: skip


def _show(options: dict[str, Any]) -> list[dict[str, Any]]:
    item = _item(options["item"])
    steps = [
        {
            "at": step.at,
            "step": step.step,
            "state": step.after,
            "by": step.actor_name or None,
            "comment": step.comment,
        }
        for step in item.history
    ]
    return [{**_row(item), **_content(item, unmask=options["unmask"])}, *steps]


def _content(item: WorkItem, *, unmask: bool) -> dict[str, Any]:
    """Return what masks may hide: payload, result and error."""
    payload, result, error = item.payload, item.result, item.error
    if not unmask:
        message = masked(message_of(item))
        payload, error = message.payload, message.errors[-1].error if message.errors else ""
        if result is not None and conf.is_masked(item.topic):
            result = "masked"
    return {"message": item.message_id, "payload": payload, "result": result, "error": error}


def _figures(options: dict[str, Any]) -> list[dict[str, Any]]:
    worklist = worklist_of(options["worklist"])
    found = figures.open_items(worklist.name)
    weeks = [
        {
            "week": row.week.date(), "kind": row.kind, "finished": row.count, "by_handler": row.by_handler,
            "share": round(row.share, 3), "mean_seconds": round(row.mean.total_seconds()),
        }
        for row in figures.finished(worklist.name)
    ]  # fmt: skip
    return [{**found.by_state, "overdue": found.overdue, "oldest": found.oldest}, *weeks]


def _take_steps(options: dict[str, Any], write: Callable[[str], object]) -> Iterator[str]:
    """Take a step with each item, in a transaction of its own. Yield why a step was refused."""
    verb = options["verb"]
    given: dict[str, Any] = {"by": _user(options["by"])}
    if verb == states.ASSIGN:
        given["to"] = _user(options["user"]) or _team(options["team"])
    elif name := ARGUMENTS.get(verb):
        given[name] = options[name]
    given["text" if verb == states.COMMENT else "comment"] = options["comment"]
    for number in options["items"]:
        try:
            item = _item(number)
        except ValueError as problem:
            yield str(problem)
            continue
        try:
            refused = bulk([item], verb, **given).get(number)
        except Error:
            if not _hides_error_of(item):
                raise
            refused = ""
        if refused is None:
            write(f"item {number}: {item.state}")
        elif _hides_error_of(item):
            yield f"item {number}: its work failed; the error is masked, see the log"
        else:
            yield refused


def _hides_error_of(item: WorkItem) -> bool:
    """Return whether the work of the item has failed, and the mask of its source may hide a part of the error."""
    return item.failed_in_work and conf.is_masked(item.topic)


def _item(number: int) -> WorkItem:
    found = WorkItem.objects.using(conf.database()).filter(pk=number).first()
    if found is None:
        raise ValueError(f"there is no item {number}")
    return found


def _user(name: str | None) -> Any:
    if name is None:
        return None
    model: Any = get_user_model()
    found = model._default_manager.using(conf.database()).filter(**{model.USERNAME_FIELD: name}).first()
    if found is None:
        raise ValueError(f"there is no user {name!r}")
    return found


def _team(name: str | None) -> Group | None:
    if name is None:
        return None
    found = Group.objects.using(conf.database()).filter(name=name).first()
    if found is None:
        raise ValueError(f"there is no group of users {name!r}")
    return found


def _lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each row: the names and values of its cells that are not empty."""
    for row in rows:
        yield on_a_line(
            "  ".join(f"{name}={_text(value)}" for name, value in row.items() if value not in (None, ""))
        )


def _text(value: Any) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else str(value)
