"""Make ``format("mqueue")`` known to Spark without a registration.

The wheel contains this file as the top-level module ``pyspark_mqueue``. Spark looks for ``DefaultSource`` in modules
whose names begin with ``pyspark_`` (pyspark/sql/worker/lookup_data_sources.py).
"""

from django_mqueue.spark.reader.source import MQueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
