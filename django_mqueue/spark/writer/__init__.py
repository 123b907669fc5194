"""Writing with ``format("mqueue")``: rows become messages with stable ids, which are stored once.

``sink`` is the entry point. It runs on executors.
It imports lower layers.
"""
