"""Operations on the queue's tables that only Spark needs: follow a topic, copy messages, fill a new group.

It imports its parent package, ``spark.sql``, ``service``, ``protocol``, ``store`` and lower layers, and never PySpark.
"""
