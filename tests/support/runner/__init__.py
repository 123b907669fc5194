"""What ``tests/run.py`` is made of. Standard library only, like the environment that it stands on."""
