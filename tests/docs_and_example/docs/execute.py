"""Run the Python blocks of documents: ``python -m tests.docs_and_example.docs.execute DOCUMENT …``, inside a project.

The blocks of a document share one namespace and run in order, on an empty database. The environment variables
``BEFORE`` and ``AFTER`` contain code to run before and after the blocks, as JSON by document. ``DOCUMENT`` is the
document's path. Tracebacks show the document's line numbers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import django

from tests.docs_and_example.docs.blocks import Block, blocks


def main(documents: Sequence[str]) -> None:
    """Run the documents. They share one Spark session even if they stop it, because its start takes the most time."""
    django.setup()
    before, after = (json.loads(os.environ.get(name, "{}")) for name in ("BEFORE", "AFTER"))
    with _one_spark() if len(documents) > 1 else nullcontext():
        for name in documents:
            print(name, flush=True)
            execute(Path(name), before.get(name, ""), after.get(name, ""))


def execute(document: Path, before: str, after: str) -> None:
    from django.core.management import call_command

    call_command("flush", interactive=False, verbosity=0)
    module = ModuleType("docs_example")
    sys.modules[module.__name__] = module  # Dataclasses look up their module here.
    namespace = vars(module)
    namespace["DOCUMENT"] = document
    exec(compile(before, "<before>", "exec"), namespace)
    for block in blocks(document):
        if runs(block):
            exec(compiled(block), namespace)
            check_setting(block, namespace)
    exec(compile(after, "<after>", "exec"), namespace)


@contextmanager
def _one_spark() -> Iterator[None]:
    from pyspark.sql import SparkSession

    stop = SparkSession.stop

    def stop_queries(spark: SparkSession) -> None:
        for query in spark.streams.active:
            query.stop()

    SparkSession.stop = stop_queries
    try:
        yield
    finally:
        SparkSession.stop = stop
        if (spark := SparkSession.getActiveSession()) is not None:
            spark.stop()


def runs(block: Block) -> bool:
    """Return True for Python that is neither a file of the tutorial nor a signature."""
    return block.language == "python" and block.file is None and not block.has("signature")


def compiled(block: Block) -> Any:
    """Compile the block, with the line numbers of the document. Annotations are not evaluated."""
    source = "\n" * (block.line - 1) + block.text
    return compile(source, str(block.document), "exec")  # The code inherits "annotations" from this module.


def check_setting(block: Block, namespace: dict[str, Any]) -> None:
    """If the block sets ``MQUEUE``, the system checks must accept the value."""
    from django.test import override_settings

    from django_mqueue import conf

    if "MQUEUE" in namespace:
        with override_settings(MQUEUE=namespace.pop("MQUEUE")):
            problems = conf.problems()
        assert not problems, f"{block}: {problems}"


if __name__ == "__main__":
    main(sys.argv[1:])
