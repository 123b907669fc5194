"""Pages of dead letters: topics, lists, one dead letter, and redrive and purge.

It imports ``admin.base``, ``admin.messages``, ``inspect``, ``browse``, ``stats``, ``service`` and lower layers.
"""
