"""The worker of ``runconsumer``: its loop, its threads, its handlers, and the outcomes of their calls.

The loop claims messages, gives them to threads, and settles the deliveries. This folder also holds the registry of
handlers, the dispatcher of signals, and the liveness file.
It imports ``service``, ``protocol`` and lower layers.
"""
