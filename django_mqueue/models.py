"""The five tables: columns and indexes, without behaviour. The proxy models are for the admin and its permissions.

Times are epoch milliseconds of the database's clock. Key columns compare byte by byte (``utf8mb4_bin``), so ``Order-1``
and ``order-1`` are different keys. A comment at each index names functions that use it.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

BINARY = "utf8mb4_bin"


def key_column(length: int, **kwargs: Any) -> models.CharField[str, str]:
    return models.CharField(max_length=length, db_collation=BINARY, **kwargs)


class Message(models.Model):
    """The log: append-only, one row for each message of each topic. Dead letters are rows of ``<topic>_dlq``."""

    offset = models.BigAutoField(primary_key=True)
    topic = key_column(128)
    partition_key = key_column(255)
    message_id = key_column(255, db_column="id")
    consumer_group = key_column(128, help_text=_("The only group that this message is for; empty for all."))
    payload = models.BinaryField()
    metadata = models.JSONField(help_text=_("kind, headers and encoding (json or bytes) of the payload."))
    available_at = models.BigIntegerField()
    created_at = models.BigIntegerField()
    published_at = models.BigIntegerField()
    failed_at = models.BigIntegerField(null=True)
    failure_count = models.PositiveIntegerField(null=True)
    last_error = models.TextField(null=True, db_collation=BINARY)  # noqa: DJ001
    original_topic = key_column(128, null=True)
    failed_group = key_column(128, null=True)
    original_id = key_column(255, null=True)

    class Meta:
        db_table = "queue_messages"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        constraints = [
            # publish: an id is unique within its partition and target group.
            models.UniqueConstraint(
                fields=["topic", "partition_key", "message_id", "consumer_group"],
                name="queue_messages_dedupe",
            ),
            # publish: a missing gate row must fail the INSERT, in any sql_mode.
            models.CheckConstraint(condition=~models.Q(topic=""), name="queue_messages_topic_set"),
        ]
        indexes = [
            # log.first_rows, positions.backlog: one partition in offset order.
            models.Index(
                fields=["topic", "partition_key", "offset", "consumer_group"], name="queue_messages_partition"
            ),
            # log.tails, garbage.page: a topic in offset order, covering. Also log.newest.
            models.Index(
                fields=["topic", "offset", "partition_key", "consumer_group"], name="queue_messages_tail"
            ),
            # Dead letters of one group by original id (redrive, admin). For scheduled messages, both columns are NULL:
            # the messages of a topic by due time (schedule.page, schedule.lock_due).
            models.Index(
                fields=["topic", "failed_group", "original_id", "available_at"], name="queue_messages_due"
            ),
        ]
        permissions = [
            ("publish_message", "Can publish messages by hand"),
            ("unmask_message", "Can see the masked parts of payloads and headers"),
            ("hurry_message", "Can deliver scheduled messages now"),
            ("reschedule_message", "Can give scheduled messages another time"),
            ("cancel_message", "Can cancel scheduled messages"),
            ("remove_message", "Can remove messages from a group"),
            ("stop_message", "Can cancel and stop jobs"),
        ]

    def __str__(self) -> str:
        return f"{self.topic}@{self.offset}"


class DeliveryState(models.Model):
    """The state of one message for one group. A message without a row was not yet delivered to the group."""

    pk = models.CompositePrimaryKey("consumer_group", "topic", "partition_key", "message_offset")
    consumer_group = key_column(128, verbose_name=_("consumer group"))
    topic = key_column(128, verbose_name=_("topic"))
    partition_key = key_column(255)
    message_offset = models.BigIntegerField()
    acked = models.BooleanField(default=False, help_text=_("Done for this group: handled, or dead-lettered."))
    in_flight = models.BooleanField(default=False, help_text=_("Delivered and not acknowledged."))
    invisible_until = models.BigIntegerField(help_text=_("Not delivered (again) before this moment."))
    retry_count = models.PositiveIntegerField(
        default=0, help_text=_("Redeliveries: attempts beyond the first.")
    )
    failure_count = models.PositiveIntegerField(
        _("failure count"), default=0, help_text=_("Failed attempts. The handler limits their number.")
    )
    delivery_token = models.BigIntegerField(
        _("delivery token"), help_text=_("Random, new with each claim. Each acknowledgement must match it.")
    )
    handed = models.BooleanField(_("handed"), default=False, help_text=_("This delivery reached a handler."))
    alone = models.BooleanField(
        _("alone"), default=False, help_text=_("Quarantined. If its subscriber dies, the attempt has failed.")
    )
    delivered_to = key_column(128, verbose_name=_("subscriber"))
    delivered_at = models.BigIntegerField()
    acked_at = models.BigIntegerField(null=True)
    errors = models.JSONField(null=True, help_text=_("The newest failed attempts, oldest first."))
    result = models.BinaryField(
        _("result"),
        null=True,
        help_text=_(
            "What a job returned, as JSON. Before that, a note with its progress. Messages have none."
        ),
    )

    class Meta:
        db_table = "queue_delivery_state"
        verbose_name = _("delivery state")
        verbose_name_plural = _("delivery states")
        indexes = [
            # delivery_state.waiting, delivery_state.in_flight: messages of a partition that are not done, by due time.
            models.Index(
                fields=["consumer_group", "topic", "partition_key", "acked", "in_flight", "invisible_until"],
                name="queue_delivery_state_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group}: {self.topic}@{self.message_offset}"


class PartitionLease(models.Model):
    """The lease of one partition: the subscriber that may deliver its messages for a group."""

    consumer_group = key_column(128, verbose_name=_("consumer group"))
    topic = key_column(128, verbose_name=_("topic"))
    partition_key = key_column(255)
    leased_by = key_column(128, help_text=_("The subscriber's name; empty when free."))
    holder = key_column(
        32, help_text=_("The subscriber's incarnation, new with each start; empty when free.")
    )
    leased_at = models.BigIntegerField()
    lease_renewed_at = models.BigIntegerField()

    class Meta:
        db_table = "queue_partition_leases"
        verbose_name = _("partition lease")
        verbose_name_plural = _("partition leases")
        constraints = [
            # leases.acquire, leases.lock_owned: the natural key.
            models.UniqueConstraint(
                fields=["consumer_group", "topic", "partition_key"], name="queue_leases_partition"
            ),
        ]
        indexes = [
            # leases.COUNTS, held, renew, release_unlocked, takeable, and group_summaries.holders: by holder, covering.
            # Without lease_renewed_at: each renewal would leave an old entry, and each count would read them all.
            models.Index(
                fields=["consumer_group", "topic", "holder", "partition_key"], name="queue_leases_holder"
            ),
            # leases.COUNTS, leases.takeable, leftovers.expired_leases: the expired ones.
            models.Index(
                fields=["consumer_group", "topic", "lease_renewed_at", "holder"], name="queue_leases_renewed"
            ),
        ]
        permissions = [("release_partitionlease", "Can release the leases of subscribers")]

    def __str__(self) -> str:
        names = {"group": self.consumer_group, "topic": self.topic, "key": self.partition_key}
        if not self.leased_by:
            return gettext("%(group)s: %(topic)s/%(key)s, free") % names
        return gettext("%(group)s: %(topic)s/%(key)s by %(subscriber)s") % {
            **names,
            "subscriber": self.leased_by,
        }


class Offset(models.Model):
    """Watermarks by group and partition, and rows of the protocol.

    - A group's row of partition '' is its registration for the topic, with start (``offset_acked``) and pause. Its
      ``scan_offset`` is -1 if the group reads the log itself, and gets no deliveries; -2 during a reset. Its ``id`` is
      its generation.
    - The rows of group '' and topic '' are the gate slots, which are never updated, and the installation's identity.
    - The row of group '', a topic and partition '' is the topic's own. It holds the settled offset (``offset_acked``)
      and the cursor of garbage collection (``scan_offset``). It is also the lock for register, unsubscribe, reset and
      garbage collection.
    - Other rows of group '' and a topic are marks: of unfinished removals, and of Spark's copies.
    """

    consumer_group = key_column(128, verbose_name=_("consumer group"))
    topic = key_column(128, verbose_name=_("topic"))
    partition_key = key_column(255)
    offset_acked = models.BigIntegerField(
        _("offset acked"), default=0, help_text=_("All of the partition up to here is done.")
    )
    scan_offset = models.BigIntegerField(
        _("scan offset"), default=0, help_text=_("All of the partition up to here has been delivered.")
    )
    paused = models.BooleanField(default=False)
    updated_at = models.BigIntegerField()

    class Meta:
        db_table = "queue_offsets"
        verbose_name = _("offset")
        verbose_name_plural = _("offsets")
        constraints = [
            # positions.positions, positions.advance, the gate: the natural key.
            models.UniqueConstraint(
                fields=["consumer_group", "topic", "partition_key"], name="queue_offsets_partition"
            ),
        ]
        indexes = [
            # garbage.watermarks: one partition over all groups, covering; a topic's registrations.
            models.Index(
                fields=["topic", "partition_key", "consumer_group", "offset_acked"],
                name="queue_offsets_groups",
            ),
        ]

    def __str__(self) -> str:
        return gettext("%(group)s: %(topic)s/%(key)s to %(offset)s") % {
            "group": self.consumer_group,
            "topic": self.topic,
            "key": self.partition_key,
            "offset": self.offset_acked,
        }


class SubscriberHeartbeat(models.Model):
    """The heartbeat of one subscriber. Live subscribers get fair shares of the partitions."""

    consumer_group = key_column(128, verbose_name=_("consumer group"))
    topic = key_column(128, verbose_name=_("topic"))
    subscriber_name = key_column(128, verbose_name=_("subscriber name"))
    incarnation = key_column(32, verbose_name=_("incarnation"))
    heartbeat_at = models.BigIntegerField()
    deregistered_at = models.BigIntegerField(null=True)
    session_lock = key_column(64, db_default="")

    class Meta:
        db_table = "queue_subscriber_heartbeats"
        verbose_name = _("subscriber")
        verbose_name_plural = _("subscribers")
        constraints = [
            # heartbeats.beat, discovery.read: the natural key.
            models.UniqueConstraint(
                fields=["consumer_group", "topic", "subscriber_name"], name="queue_heartbeats_subscriber"
            ),
        ]

    def __str__(self) -> str:
        return gettext("%(group)s: %(subscriber)s on %(topic)s") % {
            "group": self.consumer_group,
            "subscriber": self.subscriber_name,
            "topic": self.topic,
        }


class DeadLetter(Message):
    """A message that a group dead-lettered: a row of a dead-letter topic."""

    class Meta:
        proxy = True
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        default_permissions = ("view",)
        permissions = [
            ("redrive_deadletter", "Can redrive dead letters"),
            ("edit_deadletter", "Can edit the payload of a dead letter and redrive it"),
            ("purge_deadletter", "Can purge dead letters"),
        ]


class Topic(Offset):
    """A topic, as operators see it: the topic's own row."""

    class Meta:
        proxy = True
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        default_permissions = ("view",)
        permissions = [
            ("pause_topic", "Can pause all groups of a topic"),
            ("resume_topic", "Can resume all groups of a topic"),
        ]


class ConsumerGroup(Offset):
    """A consumer group of a topic, as operators see it: the row of its registration."""

    class Meta:
        proxy = True
        verbose_name = _("consumer group")
        verbose_name_plural = _("consumer groups")
        default_permissions = ("view",)
        permissions = [
            ("reset_consumergroup", "Can reset a group to another position of a topic"),
            ("pause_consumergroup", "Can pause a group"),
            ("resume_consumergroup", "Can resume a group"),
            ("unsubscribe_consumergroup", "Can unsubscribe a group from a topic"),
        ]
