"""How consumer groups consume: claim messages, acknowledge them, move watermarks, and delete old messages.

``engine`` runs one subscriber, ``dispatch`` several subscribers of a process. Each decision is checked by SQL, because
what a worker remembers may be outdated.
It imports ``store`` and ``policy``. It never imports ``service``, ``stats``, ``browse``, ``admin`` or ``spark``.
"""
