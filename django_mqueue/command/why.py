"""The verb why: where a message is for each group, and why it is not delivered."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, timedelta
from functools import partial
from typing import Any

from django.utils import timezone

from .. import conf
from ..browse import delivery_facts, explaining, id_search, masking, reasons, timeline
from ..browse.explaining import Explanation
from ..browse.timeline import MessageTimeline
from ..doctor.findings import command_line
from ..policy import names
from ..policy.message_query import DEAD
from ..policy.names import REPLIES_SUFFIX, key_of
from ..service.registration import check_group
from ..tasks.job_ids import GROUP as TASKS
from ..tasks.job_ids import topic_of
from ..workers import registry
from .messages import add_masks, job_partitions, masked_for
from .output import Output, Refused, as_text
from .verbs import Options, Verb

GROUPS_MAX, SEARCHED_MAX = 200, 10_000
"""The maximum number of groups that are read: without ``--group``, and with it."""
MESSAGES = 10
"""The maximum number of messages with one id that are explained."""
TASK_TOPICS = topic_of("")
"""The prefix of the topics that hold jobs."""


def _add_why(parser: ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("offset", nargs="?", type=int, help="the offset of the message")
    parser.add_argument("--id", help="the id of the message, in place of its offset")
    parser.add_argument("--key", help="with --id: the key of the message")
    parser.add_argument("--group", help="only for this group")
    add_masks(parser)


def why(options: Options, output: Output) -> None:
    topic, group, alias = options["topic"], options["group"], options["database"]
    names.check_name("topic", topic, names.LONG_TOPIC_MAX)
    if group is not None:
        check_group(group)
    if (options["offset"] is None) == (options["id"] is None):
        raise Refused("give either an offset or --id")
    if options["key"] is not None and options["id"] is None:
        raise Refused("--key needs --id: an offset names one message")
    documents = []
    with timezone.override(UTC):
        for offset in _offsets(alias, options):
            found = timeline.message_timeline(
                alias, offset, payload_limit=lambda _: masking.MASKABLE_BYTES,
                groups=GROUPS_MAX if group is None else SEARCHED_MAX,
            )  # fmt: skip
            if found is None:
                raise Refused(_no_message(topic, offset))
            if topic not in (found.topic, found.stored_in):
                raise Refused(f"offset {offset} is a message of topic {found.stored_in!r}, not of {topic!r}")
            documents.append(_print_explanation(alias, found, options, output))
    output.add_to_json(messages=documents)


def _offsets(alias: str, options: Options) -> list[int]:
    topic, id, key = options["topic"], options["id"], options["key"]
    if id is None:
        return [options["offset"]]
    names.check_name("id", id, names.ID_MAX)
    found = id_search.find(
        alias, id=id, key=key, topic=topic, partitions=job_partitions(id), limit=MESSAGES, payload_limit=1
    )
    offsets = [one.row_offset for one in found.messages if one.message.id == id]
    if not offsets and found.partial:
        raise Refused(
            f"topic {topic!r} has more keys than were searched, and no message with id {id!r} among them. Give --key"
        )
    if not offsets:
        search = command_line(alias, "mqueue", "find", id)
        raise Refused(f"topic {topic!r} has no message with id {id!r}. Search all topics: {search}")
    return offsets


def _no_message(topic: str, offset: int) -> str:
    retention = as_text(timedelta(milliseconds=conf.retention_ms(topic)))
    return (
        f"there is no message at offset {offset}. It was deleted, by an operator or because all groups have finished it"
        f" and the retention ({retention}) is over; or it has a new offset (it was scheduled, or redriven); or it was"
        " never committed; or it is in another database"
    )


def _print_explanation(
    alias: str, found: MessageTimeline, options: Options, output: Output
) -> dict[str, Any]:
    """Print the explanation of one message. Return it for the JSON document."""
    message = found.message
    about = {
        "topic": found.stored_in, "offset": found.row_offset, "key": key_of(found.partition), "id": message.id,
        "kind": message.kind, "published": message.published_at, "target": message.target,
    }  # fmt: skip
    if not output.as_json:
        output.values(**about)
    rows = []
    for explanation, status in _explanations(alias, found, options):
        sentences = [*explanation.state, *explanation.reasons]
        if not sentences:
            continue
        remedy = _remedy(alias, found, explanation)
        rows.append(
            {
                "group": explanation.group,
                **status,
                "sentences": sentences,
                "remedy": remedy,
                "behind": explanation.first,
            }
        )
        output.say("")
        if explanation.group:
            output.say(f"Group {explanation.group}:")
        for sentence in sentences:
            output.say(f"  {sentence}")
        if remedy:
            output.say(f"  > {remedy}")
    return {**about, "explanations": rows}


def _explanations(
    alias: str, found: MessageTimeline, options: Options
) -> Iterator[tuple[Explanation, dict[str, Any]]]:
    """Yield the explanation of the message itself, and of each wanted group, with its status."""
    mask = partial(masked_for, options)
    now, workers = delivery_facts.topic_facts(alias, found.topic)
    of_itself = explaining.of_message(found, now, workers, mask)
    yield of_itself, {"status": found.message.status, "outcome": None}
    facts, wanted = delivery_facts.facts(alias, found), options["group"]
    for state in found.group_states:
        if wanted in (None, state.group):
            strict = _is_strict(found.stored_in, state.group)
            explanation = explaining.explain(found, state, facts.get(state.group), strict=strict, mask=mask)
            yield explanation, {"status": state.message.status, "outcome": state.message.outcome}
    is_log = found.message.status is None and not found.stored_in.endswith(REPLIES_SUFFIX)
    if is_log and wanted is not None and wanted not in {state.group for state in found.group_states}:
        text = f"The group is not registered for topic {found.stored_in!r}: it receives nothing."
        yield Explanation(wanted, (text,), (), reasons.SUBSCRIBE), {"status": None, "outcome": None}


def _is_strict(topic: str, group: str) -> bool | None:
    """Return whether the group's handler is strict; None if this project has no handler for it."""
    try:
        registry.autodiscover()
    except Exception:  # A module of the project may raise anything. The answer is then less precise.
        return None
    return next((one.strict for one in registry.handlers() if (one.topic, one.group) == (topic, group)), None)


def _remedy(alias: str, found: MessageTimeline, explanation: Explanation) -> str | None:
    """Return the command that helps; None if nothing is needed."""
    topic, group, id = found.stored_in, explanation.group or "GROUP", found.message.id
    # If a group consumes the dead-letter topic itself, its commands name that topic. All others name the original.
    original = topic if explanation.group and found.message.status == DEAD else found.topic
    failed_group = explanation.group or found.message.group or "GROUP"
    of_group = ("--group", group) if explanation.group else ("--all-groups",)
    key = key_of(found.partition)
    identified = ("--id", id, *(() if key is None else ("--key", key)))
    start: tuple[str, ...] = (
        "runconsumer",
        f"{original}:{explanation.group}" if explanation.group else original,
    )
    if explanation.group == TASKS and original.startswith(TASK_TOPICS):
        start = ("runconsumer", "--tasks", original.removeprefix(TASK_TOPICS))
    commands: dict[str, tuple[str, ...]] = {
        reasons.RESUME: ("mqueue", "resume", topic, group),
        reasons.START_WORKER: start,
        reasons.RELEASE: ("mqueue", "release", topic, group, "--partition", found.partition),
        reasons.REDRIVE: ("mqueue", "redrive", original, "--group", failed_group, *identified),
        reasons.RESET: ("mqueue", "reset", topic, group, str(found.row_offset), "--dry-run"),
        reasons.SUBSCRIBE: ("mqueue", "subscribe", topic, group),
        reasons.UNHOLD: ("mqueue", "unhold", original, *of_group, *identified),
        reasons.HURRY: ("mqueue", "hurry", original, *of_group, *identified),
        reasons.LOOK_AT_FIRST: ("mqueue", "why", topic, str(explanation.first), "--group", group),
    }
    command = commands.get(explanation.remedy or "")
    return None if command is None else command_line(alias, *command)


VERBS = [Verb("why", "explain where a message is, and why it is not delivered", why, _add_why)]
