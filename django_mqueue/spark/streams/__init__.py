"""Streaming queries, also as consumer groups. ``stream_reader`` is the entry point of Spark.

A query's checkpoint shows which batches are durable. The group's position follows it.
It imports its parent package, ``spark.reader``, ``spark.database``, ``protocol``, ``store`` and lower layers.
"""
