"""The steps of handlers, and the doors at which handlers wait."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import models


class Step(models.Model):
    """A handler started or ended. The row is written in autocommit, so the steps of a killed worker remain."""

    what = models.CharField(max_length=16, help_text="start, and end or fail")
    topic = models.CharField(max_length=128)
    consumer_group = models.CharField(max_length=128)
    key = models.CharField(max_length=255)
    number = models.IntegerField()
    message_offset = models.BigIntegerField()
    attempt = models.IntegerField()
    pid = models.IntegerField()
    connection_id = models.BigIntegerField()
    at = models.BigIntegerField(help_text="Epoch microseconds, by the database's clock.")

    def __str__(self) -> str:
        return (
            f"{self.what} {self.topic}/{self.key} {self.number} (attempt {self.attempt}, process {self.pid})"
        )


class Door(models.Model):
    """A row opens the door: the handlers that wait for its name continue."""

    name = models.CharField(max_length=64, unique=True)

    def __str__(self) -> str:
        return self.name


class Sale(models.Model):
    """A handler's own write, in its own transaction."""

    number = models.IntegerField()

    def __str__(self) -> str:
        return str(self.number)


class Clerk(User):
    """A proxy of the project's users."""

    class Meta:
        proxy = True
