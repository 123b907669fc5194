"""A steady stream of messages that a test's thread publishes while workers run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.models import DeliveryState


class Stream:
    """Publishes messages 0, 1, 2 … of each key to each topic, until ``stopping`` is set. The id is ``KEY-NUMBER``.

    ``groups``: for each topic the group that handles it. At most ``ahead`` messages wait at a time, so that a slow
    machine gets no backlog. ``numbers``: how many messages each key has.
    """

    def __init__(
        self, groups: dict[str, str], keys: Sequence[str], ahead: int = 120, using: str = "default"
    ) -> None:
        self.groups, self.keys, self.ahead, self.using = groups, keys, ahead, using
        self.stopping, self.numbers = threading.Event(), 0

    @property
    def published(self) -> int:
        return self.numbers * len(self.keys) * len(self.groups)

    def settled(self) -> int:
        states = DeliveryState.objects.using(self.using).filter(acked=True)
        return states.filter(consumer_group__in=self.groups.values()).count()

    def publish(self, number: int) -> list[bool]:
        """Publish the message with this number of each key and topic. Return which of them were not in the log."""
        messages = [
            OutgoingMessage({"n": number, "do": "sleep", "seconds": 0.005}, key=key, id=f"{key}-{number}")
            for key in self.keys
        ]
        return [
            one.created for topic in self.groups for one in publish_many(topic, messages, using=self.using)
        ]

    def run(self) -> None:
        while not self.stopping.wait(0.03):
            if self.published <= self.settled() + self.ahead:
                self.publish(self.numbers)
                self.numbers += 1
