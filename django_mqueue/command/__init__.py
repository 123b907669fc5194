"""``manage.py mqueue``: the commands of operators. Each module holds the verbs of one subject."""
