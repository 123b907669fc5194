"""Archives: topics as Delta tables, which other tools can also read. See docs/reference/archive.md.

They cover archive runs, compaction, erasure, verification and reading, on a local disk or in an object store.
It imports its parent package, ``spark.reader``, ``spark.database``, ``spark.sql``, ``store`` and lower layers.
"""
