"""Search and reading of messages and dead letters for people, and operations on the messages that were found.

Each search walks an index in bounded steps, and can be continued.
It imports ``service``, ``stats`` and lower layers. The protocol never imports it.
"""
