"""Pages of jobs and of recurring jobs, and operations on them.

It imports ``admin.base``, ``admin.messages``, ``inspect``, ``tasks`` and lower layers.
"""
