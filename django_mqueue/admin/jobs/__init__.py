"""Pages of jobs and of recurring jobs, and operations on them.

It imports ``admin.base``, ``admin.messages``, ``tasks`` and lower layers.
"""
