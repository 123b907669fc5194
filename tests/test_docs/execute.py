"""Runs the Python blocks of one document: ``python -m tests.test_docs.execute DOCUMENT``, inside a project.

The blocks share one namespace and run in order, on an emptied database. ``BEFORE`` and ``AFTER`` in the environment
are code to run around them. Lines in tracebacks are those of the document.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import django

from tests.test_docs.blocks import Block, blocks


def main(document: Path) -> None:
    django.setup()
    from django.core.management import call_command

    call_command("flush", interactive=False, verbosity=0)
    module = ModuleType("docs_example")
    sys.modules[module.__name__] = module  # Dataclasses look there.
    namespace = vars(module)
    exec(compile(os.environ.get("BEFORE", ""), "<before>", "exec"), namespace)
    for block in blocks(document):
        if runs(block):
            exec(compiled(block), namespace)
            check_setting(block, namespace)
    exec(compile(os.environ.get("AFTER", ""), "<after>", "exec"), namespace)


def runs(block: Block) -> bool:
    """Python that is neither a file of the tutorial nor a signature."""
    return block.language == "python" and block.file is None and not block.has("signature")


def compiled(block: Block) -> Any:
    """The block as code, its lines numbered as in the document; annotations are not evaluated."""
    source = "\n" * (block.line - 1) + block.text
    return compile(source, str(block.document), "exec")  # Inherits this module's "annotations".


def check_setting(block: Block, namespace: dict[str, Any]) -> None:
    """A block that sets ``MQUEUE`` must set something that the checks let pass."""
    from django.test import override_settings

    from django_mqueue import conf

    if "MQUEUE" in namespace:
        with override_settings(MQUEUE=namespace.pop("MQUEUE")):
            problems = conf.problems()
        assert not problems, f"{block}: {problems}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
