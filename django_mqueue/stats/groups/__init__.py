"""Numbers about consumer groups: open messages, lag, oldest age, members, partitions, and previews of a reset.

Each number costs a bounded number of rows, however large the tables are.
It imports its parent package, ``service`` and lower layers. ``group_summary`` also imports ``browse.message_search``.
"""
