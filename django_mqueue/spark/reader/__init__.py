"""Reading with ``format("mqueue")``: options, planning, batches of Arrow, and streaming queries.

``source`` is the entry point of Spark. ``reading`` runs on executors.
It imports ``spark.database``, ``spark.sql`` and lower layers.
"""
