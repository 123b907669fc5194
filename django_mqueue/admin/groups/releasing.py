"""The operation that releases leases: of one partition, or all leases of a subscriber."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError

from ... import conf
from ...policy import names
from ...policy.names import check_partition
from ...service import releasing
from ...service.releasing import Released
from ...stats import numbers
from ...stats.groups import group_progress
from ..base import subjects, wording
from ..base.audit import Subject
from ..base.display import printable
from ..base.links import address
from ..base.operations import Asked, Done, Operation, Plan, Refused
from ..base.subjects import NameField
from ..base.views import may

IN_HAND = 1_000


class PartitionField(forms.CharField):
    """A key, or a partition of keyless messages, whose name begins with a space."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)

    def clean(self, value: Any) -> str:
        text = super().clean(value)
        try:
            return check_partition(text) if text else text
        except (TypeError, ValueError) as problem:
            raise ValidationError(str(problem)) from None


class ReleaseForm(subjects.OfGroup):
    """``holder``: the incarnation that the page has shown. An incarnation that took a lease later keeps it."""

    partition = PartitionField(required=False, widget=forms.HiddenInput)
    subscriber = NameField("subscriber", names.SUBSCRIBER_MAX, required=False, widget=forms.HiddenInput)
    holder = NameField("holder", releasing.INCARNATION_MAX, required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        asked = super().clean() or {}
        if not self.errors and not asked.get("partition") and not asked.get("subscriber"):
            raise ValidationError("Give a partition or a subscriber, to select the leases.")
        return asked


class ReleaseLeases(Operation):
    route, url_name, rights = "release", "release_leases", ("release_partitionlease",)
    title = "Release leases"
    form_class = ReleaseForm

    def subject(self, asked: Asked) -> Subject:
        return subjects.group(asked["topic"], asked["group"])

    def back(self, asked: Asked | None) -> str:
        """Return the URL of a page that has such a button, if the user may see one."""
        if asked is not None:
            of = {"topic": asked["topic"], "group": asked["group"]}
            if asked["subscriber"] and may(self.request, "view_subscriberheartbeat"):
                return address(self.request, "group_subscribers", **of)
            if may(self.request, "view_offset", "view_partitionlease"):
                return address(self.request, "group_partitions", **of)
        if may(self.request, "view_partitionlease"):
            return address(self.request, "partitionlease_changelist")
        return self.home()

    def plan(self, asked: Asked) -> Plan:
        topic, group = asked["topic"], asked["group"]
        held = releasing.held(
            topic, group, partition=asked["partition"] or None, subscriber=asked["subscriber"] or None,
            holder=asked["holder"] or None, using=conf.database(),
        )  # fmt: skip
        if not held:
            told = ("It is free, or another subscriber has taken it since the page was made.",)
            return Plan(
                f"{_what(asked)}: no longer held by the subscribers that the page showed.",
                told,
                is_empty=True,
            )
        owners = sorted({one.owner for one in held})
        holders = {one.holder for one in held}
        leases = "1 lease" if len(held) == 1 else f"{len(held):,} leases"
        of = f" on {_key(held[0].partition)}" if asked["partition"] else ""
        return Plan(
            f"Release {leases} of {wording.listed(owners)}{of}, group {group} on topic {topic}?",
            self._consequences(topic, group, owners, {one.partition for one in held}),
            button="Yes, release them" if len(held) > 1 else "Yes, release it",
            is_destructive=True,
            fixed={"holder": holders.pop()} if len(holders) == 1 else {},
        )

    def _consequences(self, topic: str, group: str, owners: list[str], partitions: set[str]) -> list[str]:
        using = conf.database()
        found = group_progress.deliveries(topic, group, limit=IN_HAND, using=using)
        mine = [one for one in found.deliveries if one.partition in partitions and not one.is_orphan]
        members = {one.name: one for one in numbers.subscribers(topic, group, using=using)}
        who = owners[0] if len(owners) == 1 else "They"
        told = []
        if mine:
            told.append(
                f"{wording.count(len(mine), 'message').capitalize()} of {'it' if len(partitions) == 1 else 'them'} in"
                " flight now: delivered again at once, one at a time, to the next subscriber that takes the"
                " partition."
            )
            told.append(
                "Handlers that run now are not stopped. Their work may be done twice, and their acks are refused."
            )
        else:
            told.append("None of its messages are in flight now.")
        if any(one.alone for one in mine):
            told.append("A message that runs alone counts as failed once more.")
        for name in owners:
            member = members.get(name)
            if member is not None and member.status == "alive":
                told.append(
                    f"{printable(name)} is alive, and may take its partitions again at once. To prevent this, stop"
                    " its process, or pause the group."
                )
            else:
                told.append(
                    f"{printable(name)} has sent no heartbeat lately: its leases expire by themselves."
                )
        told.append(f"No message is lost. {printable(who)} can no longer ack the messages received before.")
        return told

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        done = releasing.release(
            asked["topic"], asked["group"], partition=asked["partition"] or None,
            subscriber=asked["subscriber"] or None, holder=asked["holder"] or None, using=conf.database(),
        )  # fmt: skip
        told = _told(asked, done)
        if not done.partitions:
            raise Refused(told)
        return Done(told, int(done), level=messages.WARNING if done.locked else messages.SUCCESS)


def _key(partition: str) -> str:
    key = names.key_of(partition)
    return f"keyless {partition.strip()}" if key is None else f"key {printable(key)}"


def _what(asked: Asked) -> str:
    return (
        f"The lease on {_key(asked['partition'])}"
        if asked["partition"]
        else f"The leases of {asked['subscriber']}"
    )


def _told(asked: Asked, done: Released) -> str:
    parts = []
    if done.partitions:
        leases = "1 lease was" if len(done.partitions) == 1 else f"{len(done.partitions):,} leases were"
        of = f": {_key(done.partitions[0])}" if len(done.partitions) == 1 else ""
        by = f" of {asked['subscriber']}" if asked["subscriber"] else ""
        parts.append(f"{leases} released{by}{of}.")
    if done.locked:
        parts.append(
            f"{wording.listed([_key(one) for one in done.locked])}: not released, because the holder has the lease"
            " locked in an open transaction. Try again when the transaction ends, or end its process."
        )
    if done.changed:
        parts.append(f"{len(done.changed):,} had a new holder meanwhile.")
    return " ".join(parts) or "Nothing was released: the subscribers that the page showed held nothing."
