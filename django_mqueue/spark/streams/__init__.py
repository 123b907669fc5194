"""Streaming queries: micro-batches of the log, checkpoints, and queries that are consumer groups.

``stream_reader`` is the entry point of Spark. It imports ``spark.reader``, ``spark.database`` and lower layers.
"""
