"""Run archive commands as processes that tests kill. Read an archive's content by its manifests, with pyarrow alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from django.db import connection

from django_mqueue.models import SubscriberHeartbeat

from .commands import NO_DJANGO, SMALL, command
from .crashing import Processes
from .mounts import mount
from .streams import stands_at

TOPIC, GROUP = "orders", "archive"
ARGUMENTS = {
    "host": "--host",
    "port": "--port",
    "user": "--user",
    "database": "--database",
    "unixSocket": "--unix-socket",
}


@contextmanager
def verb(
    name: str, options: dict[str, str], place: Path, *arguments: str, hadoop: bool = False
) -> Iterator[Processes]:
    """Run an archive verb as a process.

    Everything that it started is killed at the end. The heartbeats of earlier runs expire first, so the new run takes
    over at once. With ``hadoop`` the verb reaches the folder through a mount.
    """
    SubscriberHeartbeat.objects.filter(consumer_group=GROUP).update(heartbeat_at=0)
    database = [word for option, value in options.items() for word in (ARGUMENTS[option], value)]
    environment = {**NO_DJANGO, "MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"])}
    needs = database if name == "archive" else []
    words = (name, "--topic", TOPIC, *arguments, *needs, *SMALL, "--master", "local[2,3]")
    if hadoop:
        key, value = mount("kills", place.parent)
        words = (*words, "--to", f"viewfs://kills/mnt/{place.name}", "--conf", f"spark.hadoop.{key}={value}")
    else:
        words = (*words, "--to", str(place))
    with command(("django_mqueue.spark",), words, environment) as worker:
        yield Processes(worker)


def manifests(place: Path) -> dict[str, dict[str, Any]]:
    """Return the valid manifests by name, as the reference of the format defines them."""
    paths = place.glob(f"manifests/{TOPIC}/*.json")
    found = sorted((json.loads(path.read_bytes()) for path in paths), key=lambda each: -each["compaction"])
    counted, replaced = {}, set[str]()
    for manifest in found:
        if manifest["name"] not in replaced:
            counted[manifest["name"]] = manifest
            replaced.update(manifest["replaces"])
    return counted


def named(place: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of all files that valid manifests name, by path."""
    entries = [
        entry
        for manifest in manifests(place).values()
        for part in manifest["tables"].values()
        for entry in part["files"]
    ]
    assert len({entry["path"] for entry in entries}) == len(entries), "a file is named twice"
    return {entry["path"]: entry for entry in entries}


def written(place: Path) -> set[str]:
    """Return the paths of all data files, named by a manifest or not."""
    return {path.relative_to(place).as_posix() for path in place.glob("*/*/*/*.parquet")}


def numbers(place: Path) -> list[int]:
    """Return the payloads of all archived messages, sorted. Check each file against its manifest."""
    found: list[int] = []
    for path, entry in named(place).items():
        data = (place / path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"]), path
        table = pq.ParquetFile(place / path).read()
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets), path
        assert (len(offsets), offsets[0], offsets[-1]) == (entry["rows"], entry["first"], entry["last"]), path
        if path.startswith("messages/"):
            found += [json.loads(payload) for payload in table.column("payload").to_pylist()]
    return sorted(found)


def batches(place: Path) -> int:
    """Return the number of the last batch that has a manifest."""
    return max((manifest["batch"] for manifest in manifests(place).values()), default=0)


def spark_writes(place: Path) -> bool:
    """Return True if Spark has temporary files there, which have no final names yet."""
    return any(place.glob(".writing/*/*/_temporary/**/*.parquet"))


def is_being_written(place: Path) -> bool:
    """Return True if there are files of a batch without a manifest."""
    last = batches(place)
    return any(int(path.rpartition("/")[2][:10]) > last for path in written(place))


def is_ahead_of_its_group(place: Path) -> bool:
    """Return True if the last manifest exists and the group's offset is below its position."""
    found = manifests(place)
    position = max((manifest["position"] for manifest in found.values()), default=0)
    return position > 0 and stands_at(GROUP, TOPIC) < position
