"""Give a folder a URI that only Hadoop knows: ``viewfs``, with a mount table in the session's configuration."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mount(name: str, folder: Path) -> tuple[str, str]:
    """Return the Hadoop setting that mounts the folder at ``viewfs://NAME/mnt``."""
    return f"fs.viewfs.mounttable.{name}.link./mnt", folder.as_uri()


@contextmanager
def mounted(spark: SparkSession, folder: Path) -> Iterator[str]:
    """Yield a URI for the folder. Each URI has a new name, because Hadoop caches a file system by its name."""
    name = f"t{uuid.uuid4().hex}"
    key, value = mount(name, folder)
    spark.conf.set(key, value)
    try:
        yield f"viewfs://{name}/mnt"
    finally:
        spark.conf.unset(key)
