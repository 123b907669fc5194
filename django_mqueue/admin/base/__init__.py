"""Parts that all pages of the admin share: lists, links, rights, operations with a confirmation, display of values.

It imports ``stats``, ``browse``, ``service`` and lower layers.
"""
