"""The parts of ``tests/run.py``. They use the standard library only, as the environment package does."""
