"""The work of consumer groups: claim messages, acknowledge them, move watermarks, and delete old messages.

``subscriber`` runs one subscriber. ``claim_scheduler`` claims for all subscribers of a process. SQL checks each
decision, because a worker's memory may be outdated.
It imports ``store`` and lower layers. It never imports ``service`` or a higher layer.
"""
