"""Store messages of an archive, and of the log above it, again as copies.

The copies are for all groups, for one group, or for a new group that gets the past of the topic.
"""
