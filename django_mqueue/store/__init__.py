"""All SQL of the queue, except SQL that only Spark or worklists use. Each module holds the statements of one subject.

The subjects are the log, delivery state, leases, heartbeats, positions, dead letters, reply boxes and scheduled
messages. Subpackages hold connections, queries for workers and monitoring, and reads of the server's own state.
It imports ``policy`` and lower layers. Only ``store.connection`` imports the database driver.
"""
