"""Errors about options and arguments for Spark, and about the environment in which Spark runs."""

from __future__ import annotations

from ..exceptions import MQueueError


class OptionError(MQueueError, ValueError):
    """An option is unknown, impossible, or contradicts another option.

    The message names the option, its value and what to do.
    """


class NoConnection(MQueueError):
    """The queue's database cannot be reached, or refuses this account."""


class NoSuchTopic(MQueueError):
    """A named topic has no message and never had a group, or no topic matches a pattern."""


class NoSpark(MQueueError):
    """Spark cannot run here: Java, PySpark, another package or the Spark Connect server is missing or unsuitable."""


class RowError(MQueueError, ValueError):
    """A row cannot be stored as a message. The message names the column or the cause."""


class NoArchive(MQueueError):
    """There is no archive at the given place. The message says what is there instead."""


class ArchiveError(MQueueError):
    """An archive cannot be written or used.

    For example, its files do not match its tables, its format is newer, or it belongs to another database or run.
    """


class ExportError(MQueueError):
    """The folder of an export is not empty, or cannot be written."""


class ReplayBegun(MQueueError):
    """A replay of this name began with other conditions, or from another archive. Choose another name."""
