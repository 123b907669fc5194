"""``python -m django_mqueue.spark VERB …``; also as the application of spark-submit, by this file's path."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by its path: this folder's modules are no top-level ones, the package is
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from django_mqueue.spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
