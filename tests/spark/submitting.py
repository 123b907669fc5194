"""Replace this process by ``spark-submit`` of PySpark's package: ``python -m tests.spark.submitting …``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

from django_mqueue.spark.java import find_java

if __name__ == "__main__":
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "JAVA_HOME": str(find_java().home)}
    os.execve(program, [str(program), *sys.argv[1:]], environment)
