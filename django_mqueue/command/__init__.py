"""``manage.py mqueue``: the commands of operators. Each module holds the verbs of one subject.

A verb declares its arguments, calls functions of other packages, and prints tables, sentences or JSON.
It imports ``doctor``, ``inspect``, ``tasks``, ``browse``, ``stats``, ``workers``, ``service`` and lower layers.
"""
