"""The command ``manage.py mqueue_spark``, and ``python -m django_mqueue.spark`` without Django's settings."""

from .program import main as main
