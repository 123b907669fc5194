"""A folder under a name that only Hadoop knows: ``viewfs``, with a table of mounts in the session's configuration."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mount(name: str, folder: Path) -> tuple[str, str]:
    """What Hadoop is told, so that ``viewfs://NAME/mnt`` is the folder."""
    return f"fs.viewfs.mounttable.{name}.link./mnt", folder.as_uri()


@contextmanager
def mounted(spark: SparkSession, folder: Path) -> Iterator[str]:
    """The folder's URI. Each has a name of its own: Hadoop keeps what it has once found under one."""
    name = f"t{uuid.uuid4().hex}"
    key, value = mount(name, folder)
    spark.conf.set(key, value)
    try:
        yield f"viewfs://{name}/mnt"
    finally:
        spark.conf.unset(key)
