"""The command ``backfill``: give a new group the past of a topic.

Without ``--yes`` it only shows what it would store.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict

from ...replays.choice import check_backfill
from ..arguments import checked
from ..verb import Job, Verb
from .replay import Watch, add_doing, add_source, tell_preview


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True, help="The new group; it must not be registered yet.")
    add_source(parser, required=True)
    parser.add_argument(
        "--keep-paused", action="store_true", help="Leave the group paused at the end; resume it yourself."
    )
    add_doing(parser)


def run(job: Job) -> int:
    from ...replays.backfills import backfill
    from ...replays.preview import Preview

    given = job.arguments
    with checked():
        check_backfill(given.topic, given.group, given.source, given.rate, job.options)
    with checked(), job.progress(None, "messages") as bar:
        found = backfill(
            job.spark,
            given.topic,
            given.group,
            source=given.source,
            rate=given.rate,
            resume=not given.keep_paused,
            fail_on_data_loss=not given.allow_gap,
            options=job.options,
            dry_run=not given.yes,
            stopping=job.stopping,
            watch=Watch(bar),
            say=job.say,
        )
    if isinstance(found, Preview):
        tell_preview(job, found)
        return 0
    if given.json:
        job.tell(json.dumps(asdict(found)))
    elif found.before:
        job.tell(f"group {found.group!r} already received the past messages of topic {found.topic!r}")
    elif found.finished:
        state = "paused" if given.keep_paused else "resumed"
        job.tell(f"{found.stored:,} messages stored for group {found.group!r}, which is {state}")
    if not found.finished:
        job.say(f"stopped before the end: group {found.group!r} stays paused; run it again to continue")
    return 0


VERB = Verb(
    "backfill",
    "Give a new group the past messages of a topic from an archive, then the messages of the log, without gap or"
    " overlap.",
    arguments,
    run,
)
