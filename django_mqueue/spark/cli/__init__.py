"""The command ``manage.py mqueue_spark``, and ``python -m django_mqueue.spark`` without Django's settings.

It parses arguments, starts and ends Spark, handles signals, and prints results and errors.
It imports its parent package, ``spark.cli.verbs``, ``command``, ``store`` and lower layers.
"""

from .program import main as main
