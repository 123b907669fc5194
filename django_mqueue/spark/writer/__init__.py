"""Writing with ``format("mqueue")``: rows become messages with stable ids. ``sink`` is the entry point.

It imports its parent package, the options of ``spark.reader``, ``service``, ``store`` and lower layers.
"""
