"""Store messages of an archive, and of the log above it, again as copies.

A replay stores copies for all groups or for one group. A backfill stores copies for a new group.
It imports its parent package, ``spark.archives``, ``spark.reader``, ``spark.database``, ``spark.sql``, ``service``,
``store`` and lower layers.
"""
