"""Exports: write the rows of a batch of ``format("mqueue")`` to Parquet files, without passing through Spark's JVM.

It imports its parent package, ``spark.archives``, ``spark.reader`` and ``policy``.
"""
