"""The page of recurring jobs, and the operations on them.

It imports ``admin.base``, ``tasks`` and lower layers.
"""
