"""Reading with ``format("mqueue")``. ``source`` is the entry point of Spark; ``reading`` runs on executors.

The driver plans ranges of offsets, and each task reads one range as Arrow batches.
It imports its parent package, ``spark.sql``, ``service``, ``protocol``, ``store`` and lower layers. Only ``source``
imports ``spark.streams`` and ``spark.writer``.
"""
