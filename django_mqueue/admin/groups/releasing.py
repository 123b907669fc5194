"""The operation that releases leases: of one partition, or all leases of a subscriber."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError

from ... import conf
from ...policy import names
from ...service import releasing
from ...service.releasing import Released
from ...stats import numbers
from ...stats.groups import group_progress
from ..base.display import count, listed, printable
from ..base.forms import GroupForm, name_field, partition_field
from ..base.operations import Data, Plan, Refused, Result
from ..base.urls import allowed_url
from .pausing import GroupOperation

DELIVERIES_READ = 1_000


class ReleaseForm(GroupForm):
    """The leases to release. ``holder``: the incarnation that the page has shown. Leases of later incarnations stay."""

    partition = partition_field(required=False, widget=forms.HiddenInput)
    subscriber = name_field("subscriber", names.SUBSCRIBER_MAX, required=False, widget=forms.HiddenInput)
    holder = name_field("holder", releasing.INCARNATION_MAX, required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not self.errors and not data.get("partition") and not data.get("subscriber"):
            raise ValidationError("Give a partition or a subscriber, to select the leases.")
        return data


def _arguments(data: Data) -> dict[str, Any]:
    """Return the arguments of ``held`` and ``release``."""
    return {**{name: data[name] or None for name in ReleaseForm.base_fields}, "using": conf.database()}


class ReleaseLeases(GroupOperation):
    route, url_name = "release", "release_leases"
    title = "Release leases"
    form_class = ReleaseForm

    def back(self, data: Data | None) -> str | None:
        """Return the URL of a page with a Release button that the user may open, or None."""
        url = None
        if data is not None:
            group = {"topic": data["topic"], "group": data["group"]}
            if data["subscriber"]:
                url = allowed_url(self.request, "group_subscribers", **group)
            url = url or allowed_url(self.request, "group_partitions", **group)
        return url or allowed_url(self.request, "partitionlease_changelist")

    def plan(self, data: Data) -> Plan:
        held = releasing.held(**_arguments(data))
        if not held:
            what = (
                f"The lease on {_key(data['partition'])}"
                if data["partition"]
                else f"The leases of {data['subscriber']}"
            )
            return Plan(
                f"{what}: no longer held by the subscribers that the page showed.",
                ["Since the page was shown, the lease was freed, or another subscriber has taken it."],
                is_empty=True,
            )
        owners = sorted({one.owner for one in held})
        holders = {one.holder for one in held}
        leases = "1 lease" if len(held) == 1 else f"{len(held):,} leases"
        on = f" on {_key(held[0].partition)}" if data["partition"] else ""
        return Plan(
            f"Release {leases} of {listed(owners)}{on}, group {data['group']} on topic {data['topic']}?",
            _consequences(data["topic"], data["group"], owners, {one.partition for one in held}),
            button="Release",
            is_destructive=True,
            fixed={"holder": holders.pop()} if len(holders) == 1 else {},
        )

    def perform(self, data: Data) -> Result:
        released = releasing.release(**_arguments(data))
        message = _message(data, released)
        if not released.partitions:
            raise Refused(message)
        return Result(message, messages.WARNING if released.locked else messages.SUCCESS)


def _consequences(topic: str, group: str, owners: list[str], partitions: set[str]) -> list[str]:
    using = conf.database()
    found = group_progress.deliveries(topic, group, limit=DELIVERIES_READ, using=using)
    in_flight = [one for one in found.deliveries if one.partition in partitions and not one.is_orphan]
    alive = {one.name for one in numbers.subscribers(topic, group, using=using) if one.status == "alive"}
    texts = ["Other subscribers can take the partitions at once. A release cannot be undone."]
    if in_flight:
        texts += [
            f"{count(len(in_flight), 'message').capitalize()} in flight: delivered again at once, one at a time, to the"
            " next subscriber that takes the partition.",
            "Handlers that run now are not stopped. Their work may be done twice, and their acknowledgements are"
            " refused.",
        ]
    else:
        texts.append("No messages are in flight.")
    if any(one.alone for one in in_flight):
        texts.append("A quarantined message counts as failed once more.")
    for name in owners:
        texts.append(
            f"{printable(name)} is alive, and may take its partitions again at once. To prevent this, stop its"
            " worker, or pause the group."
            if name in alive
            else f"{printable(name)} has sent no heartbeat lately: its leases expire by themselves."
        )
    who = printable(owners[0]) if len(owners) == 1 else "They"
    return [*texts, f"No message is lost. {who} can no longer acknowledge the messages received before."]


def _key(partition: str) -> str:
    key = names.key_of(partition)
    return f"keyless {partition.strip()}" if key is None else f"key {printable(key)}"


def _message(data: Data, released: Released) -> str:
    parts = []
    if released.partitions:
        is_one = len(released.partitions) == 1
        leases = "1 lease was" if is_one else f"{len(released.partitions):,} leases were"
        by = f" of {data['subscriber']}" if data["subscriber"] else ""
        parts.append(f"{leases} released{by}{f': {_key(released.partitions[0])}' if is_one else ''}.")
    if released.locked:
        parts.append(
            f"{listed([_key(one) for one in released.locked])}: not released, because the holder has the lease"
            " locked in an open transaction. Try again when the transaction ends, or stop its worker."
        )
    if released.changed:
        parts.append(f"{len(released.changed):,} had a new holder meanwhile.")
    return " ".join(parts) or "Nothing was released: the subscribers that the page showed held nothing."
