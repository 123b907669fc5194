"""The work of consumer groups: claim messages, acknowledge them, move watermarks, and delete old messages.

``subscriber`` runs one subscriber. ``claim_scheduler`` claims for all subscribers of a process. SQL checks each
decision, because a worker's memory may be outdated.
It never imports ``service``, ``stats``, ``browse``, ``admin`` or ``spark``.
"""
