"""Migrations of the queue's tables. They import Django, and from this project only the gate rows of ``store``."""
