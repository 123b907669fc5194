"""Pages of messages: lists, the timeline of one message, publishing, and delivery state.

It imports ``admin.base``, ``inspect``, ``tasks``, ``stats``, ``browse``, ``service`` and lower layers.
"""
