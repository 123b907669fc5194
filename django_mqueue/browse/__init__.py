"""Search messages and dead letters for operators, and run operations on the messages that were found.

Each search walks an index in bounded steps, and can be continued.
It imports ``stats``, ``service`` and lower layers. The protocol never imports it.
"""
