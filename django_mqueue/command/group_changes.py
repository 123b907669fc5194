"""Verbs that change groups: subscribe, unsubscribe, reset, pause, resume, release."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from ..exceptions import GroupActive
from ..inspect import Stretch, group_figures, preview_reset
from ..service import group_positions, registration, releasing
from ..service.actions import Author
from ..service.registration import Start
from ..stats import topic_list
from ..store import offsets
from ..store.server import leftovers
from .output import Output
from .selecting import author_of, check_known, unknown_topic
from .verbs import Options, Verb, confirm, parse_time


def _start(text: str) -> Start:
    """Return the position that an argument names: earliest, latest, an offset or a time."""
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if text.isdecimal():
        return int(text)
    try:
        return parse_time(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(
            f"must be earliest, latest, an offset or an ISO 8601 time, not {text!r}"
        ) from error


def _add_group(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("group")


def _add_groups(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("group", nargs="?", help="default: all groups of the topic")


def _add_subscribe(parser: ArgumentParser) -> None:
    _add_group(parser)
    parser.add_argument(
        "--start", type=_start, default="earliest", help="earliest (default), latest, an offset or a time"
    )


def subscribe(options: Options, output: Output) -> None:
    topic, group, using = options["topic"], options["group"], options["database"]
    if options["dry_run"]:
        registration.check_names(topic, group)
        is_new = group not in topic_list.topic(using, topic).groups
    else:
        is_new = registration.subscribe(topic, group, options["start"], **author_of(options))
    output.values(topic=topic, group=group, is_new=is_new)
    if not is_new:
        output.say("The group was registered before. Its position did not change.")


def unsubscribe(options: Options, output: Output) -> None:
    topic, group, using = options["topic"], options["group"], options["database"]
    registration.check_names(topic, group)
    figures = group_figures([(topic, group)], using=using)[topic, group]
    output.values(topic=topic, group=group, was_registered=figures.registered, pending=figures.pending)
    if options["dry_run"]:
        return
    if not figures.registered:
        is_empty = not any(leftovers.count(using, table, topic, group) for table in leftovers.STATE)
        if is_empty and (problem := unknown_topic(using, topic)):
            output.problem(problem)
            return
        confirm(options, f"Group {group!r} is not registered. Delete its remaining state, if there is any?")
        registration.unsubscribe(topic, group, **author_of(options))
        return
    confirm(
        options,
        f"Group {group!r} will no longer receive messages of topic {topic!r}, and its position will be deleted."
        f" It has {figures.workers} live subscribers.",
    )
    registration.unsubscribe(topic, group, **author_of(options))
    output.say("The group is unregistered.")


def _add_reset(parser: ArgumentParser) -> None:
    _add_group(parser)
    parser.add_argument("to", type=_start, help="earliest, latest, an offset or a time")
    parser.add_argument(
        "--force", action="store_true", help="reset the group even if its subscribers are running"
    )


def reset(options: Options, output: Output) -> None:
    topic, group, to, using = options["topic"], options["group"], options["to"], options["database"]
    preview = preview_reset(topic, group, to, using=using)
    output.values(topic=topic, group=group, starts_after=preview.start, subscribers=preview.running)
    rows = [
        _stretch("delivered again", preview.replayed),
        _stretch("skipped, never delivered", preview.skipped),
        _stretch("delivered anyway", preview.coming),
    ]
    output.table("effect", rows)
    if options["dry_run"]:
        if preview.running:
            output.say("Subscribers of the group run: stop them, or give --force.")
        return
    if preview.running and not options["force"]:
        raise GroupActive(topic, group, list(preview.running))
    confirm(options, f"Reset group {group!r} of topic {topic!r}?")
    start = group_positions.reset_seen(
        topic, group, to, preview.life, force=options["force"], author=Author(options["by"], options["why"]),
        using=using,
    )  # fmt: skip
    output.values(starts_after=start)


def _stretch(effect: str, stretch: Stretch) -> dict[str, Any]:
    return {
        "effect": effect, "messages": stretch.count, "first": stretch.first, "published": stretch.first_published_at,
        "last": stretch.last, "last_published": stretch.last_published_at,
    }  # fmt: skip


def set_paused(options: Options, output: Output) -> None:
    """Pause or resume a group, or all groups of a topic: the name of the verb says which."""
    topic, group, using = options["topic"], options["group"], options["database"]
    paused = options["subcommand"] == "pause"
    if options["dry_run"]:
        if group is not None:
            registration.check_names(topic, group)
            registration.require_registration(using, topic, group)
        changed = sum(
            group in (None, name) and one.paused != paused and not (paused and one.reads_log)
            for name, one in offsets.registrations(using, topic).items()
        )
    else:
        change = group_positions.pause if paused else group_positions.resume
        changed = change(topic, group, **author_of(options))
    output.values(topic=topic, groups_changed=changed)
    if not changed:
        check_known(options, output)


def _add_release(parser: ArgumentParser) -> None:
    _add_group(parser)
    parser.add_argument("--partition", help="the lease of this key, or of this partition")
    parser.add_argument("--subscriber", help="all leases of the subscriber with this name")
    parser.add_argument("--holder", help="only leases of this incarnation, as the verb leases shows it")


def release(options: Options, output: Output) -> None:
    arguments = {name: options[name] for name in ("topic", "group", "partition", "subscriber", "holder")} | {
        "using": options["database"]
    }
    if options["dry_run"]:
        held = releasing.held(**arguments)
        rows = [{"partition": one.partition, "subscriber": one.subscriber} for one in held]
        output.table("would_release", rows)
        return
    released = releasing.release(**arguments | author_of(options))
    for name in ("partitions", "locked", "changed"):
        rows = [{"partition": partition} for partition in getattr(released, name)]
        output.table({"partitions": "released"}.get(name, name), rows)
    if released.locked:
        output.problem(
            "some leases are locked by an open transaction of their holder, and stay with it: see mqueue blockers"
        )


VERBS = [
    Verb("subscribe", "register a group for a topic", subscribe, _add_subscribe, changes=True),
    Verb("unsubscribe", "remove a group from a topic", unsubscribe, _add_group, changes=True, deletes=True),
    Verb("reset", "move a group to another position", reset, _add_reset, changes=True, deletes=True),
    Verb("pause", "deliver nothing more to a group, until resume", set_paused, _add_groups, changes=True),
    Verb("resume", "end a pause", set_paused, _add_groups, changes=True),
    Verb("release", "release leases as if they had expired", release, _add_release, changes=True),
]
