"""How consumer groups consume: claim messages, acknowledge them, move watermarks, and delete old messages.

``subscriber`` runs one subscriber, ``claim_scheduler`` several of a process. SQL checks each decision, because what a
worker remembers may be outdated.
It imports ``store`` and ``policy``. It never imports ``service``, ``stats``, ``browse``, ``admin`` or ``spark``.
"""
