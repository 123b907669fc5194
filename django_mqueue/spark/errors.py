"""What is wrong with how Spark was asked, or with where it runs."""

from __future__ import annotations

from ..exceptions import GroupNotNew as GroupNotNew
from ..exceptions import MQueueError
from ..exceptions import Superseded as Superseded


class OptionError(MQueueError, ValueError):
    """An option is unknown, impossible, or contradicts another: names the option, its value and a way out."""


class NoConnection(MQueueError):
    """The queue's database cannot be reached, or does not let this account in."""


class NoSuchTopic(MQueueError):
    """A topic that was named holds nothing, and nobody was ever registered for it."""


class NoSpark(MQueueError):
    """Spark cannot run here: no Java, a wrong version of it, or no PySpark."""


class RowError(MQueueError, ValueError):
    """A row cannot be a message: says which column, and why."""


class NoArchive(MQueueError):
    """There is no archive where one was looked for: says what is there instead."""


class ArchiveError(MQueueError):
    """An archive cannot be written, or its files are not what its tables say, or it is of a newer version."""


class ExportError(MQueueError):
    """An export's folder is not empty, or cannot be written."""


class ReplayBegun(MQueueError):
    """A replay of this name was begun with other conditions: its name says what was stored already."""
