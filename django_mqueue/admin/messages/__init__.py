"""Pages of messages: lists, the timeline of one message, publishing, and delivery state.

It imports ``admin.base``, ``stats``, ``browse``, ``service`` and lower layers.
"""
