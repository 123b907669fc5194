"""The operation that releases leases: of one partition, or all leases of a subscriber."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ... import conf
from ...policy import names
from ...service import releasing
from ...service.releasing import Released
from ...stats import numbers
from ...stats.groups import group_progress
from ..base.display import keyless, listed, printable
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
            raise ValidationError(_("Give a partition or a subscriber, to select the leases."))
        return data


def _arguments(data: Data) -> dict[str, Any]:
    """Return the arguments of ``held`` and ``release``."""
    return {**{name: data[name] or None for name in ReleaseForm.base_fields}, "using": conf.database()}


class ReleaseLeases(GroupOperation):
    route, url_name = "release", "release_leases"
    title = gettext_lazy("Release leases")
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
            what = _("%(subscriber)s no longer holds the leases that the page showed.")
            if data["partition"]:
                what = _("The subscriber that the page showed no longer holds the lease on %(key)s.")
            why = _("Since the page was shown, the lease was freed, or another subscriber has taken it.")
            return Plan(what % {**data, "key": _key(data["partition"])}, [why], is_empty=True)
        owners = sorted({one.subscriber for one in held})
        holders = {one.incarnation for one in held}
        return Plan(
            _question(data, len(held), owners),
            _consequences(data["topic"], data["group"], owners, {one.partition for one in held}),
            button=_("Release"),
            is_destructive=True,
            fixed={"holder": holders.pop()} if len(holders) == 1 else {},
        )

    def perform(self, data: Data) -> Result:
        released = releasing.release(**_arguments(data), by=self.user_name, why=self.reason)
        message = _message(data, released)
        if not released.partitions:
            raise Refused(message)
        return Result(message, messages.WARNING if released.locked else messages.SUCCESS)


def _question(data: Data, leases: int, owners: list[str]) -> str:
    if data["partition"]:
        text = ngettext(
            "Release %(count)s lease of %(owners)s on %(key)s, group %(group)s on topic %(topic)s?",
            "Release %(count)s leases of %(owners)s on %(key)s, group %(group)s on topic %(topic)s?",
            leases,
        )
    else:
        text = ngettext(
            "Release %(count)s lease of %(owners)s, group %(group)s on topic %(topic)s?",
            "Release %(count)s leases of %(owners)s, group %(group)s on topic %(topic)s?",
            leases,
        )
    values = {"count": f"{leases:,}", "owners": listed(owners), "key": _key(data["partition"])}
    return text % {**data, **values}


def _consequences(topic: str, group: str, owners: list[str], partitions: set[str]) -> list[str]:
    using = conf.database()
    subscriber = owners[0] if len(owners) == 1 else None
    found = group_progress.deliveries(topic, group, subscriber=subscriber, limit=DELIVERIES_READ, using=using)
    in_flight = [one for one in found.deliveries if one.partition in partitions and not one.is_orphan]
    alive = {one.name for one in numbers.subscribers(topic, group, using=using) if one.status == "alive"}
    texts = [_("Other subscribers can take the partitions at once. A release cannot be undone.")]
    if in_flight:
        again = ngettext(
            "%(count)s message is in flight. The next subscriber of the partition receives it again at once.",
            "%(count)s messages are in flight. The next subscriber of each partition receives them again at once, one"
            " at a time.",
            len(in_flight),
        )
        texts += [
            again % {"count": f"{len(in_flight):,}"},
            _(
                "Handlers that run now are not stopped. Their work may be done twice, and their acknowledgements are"
                " refused."
            ),
        ]
    elif not found.more:
        texts.append(_("No messages are in flight."))
    if found.more:
        texts.append(_("Not all messages in flight were read: there may be more in these partitions."))
    if any(one.alone for one in in_flight):
        texts.append(_("Quarantined messages get one more failed attempt."))
    for name in owners:
        text = _("%(subscriber)s has sent no heartbeat lately: its leases expire by themselves.")
        if name in alive:
            text = _(
                "%(subscriber)s is alive, and may take its partitions again at once. To prevent this, stop its worker,"
                " or pause the group."
            )
        texts.append(text % {"subscriber": printable(name)})
    end = _("No message is lost. The subscribers can no longer acknowledge the messages received before.")
    if len(owners) == 1:
        end = _("No message is lost. %(subscriber)s can no longer acknowledge the messages received before.")
    return [*texts, end % {"subscriber": printable(owners[0])}]


def _key(partition: str) -> str:
    key = names.key_of(partition)
    return keyless(partition) if key is None else _("key %(key)s") % {"key": printable(key)}


def _message(data: Data, released: Released) -> str:
    sentences = []
    if released.partitions:
        sentences.append(_released(data["subscriber"], released.partitions))
    if released.locked:
        text = _(
            "%(keys)s: not released, because the subscriber has the lease locked in an open transaction. Try again when"
            " the transaction ends, or stop its worker."
        )
        sentences.append(text % {"keys": listed([_key(one) for one in released.locked])})
    if changed := len(released.changed):
        text = ngettext(
            "%(count)s lease was freed or taken by another subscriber meanwhile.",
            "%(count)s leases were freed or taken by other subscribers meanwhile.",
            changed,
        )
        sentences.append(text % {"count": f"{changed:,}"})
    return " ".join(sentences) or _(
        "Nothing was released: these subscribers no longer hold the leases that the page showed."
    )


def _released(subscriber: str, partitions: Sequence[str]) -> str:
    if len(partitions) == 1:
        text = _("1 lease was released: %(key)s.")
        if subscriber:
            text = _("1 lease of %(subscriber)s was released: %(key)s.")
    elif subscriber:
        text = ngettext(
            "%(count)s lease of %(subscriber)s was released.",
            "%(count)s leases of %(subscriber)s were released.",
            len(partitions),
        )
    else:
        text = ngettext("%(count)s lease was released.", "%(count)s leases were released.", len(partitions))
    values = {"count": f"{len(partitions):,}", "subscriber": subscriber, "key": _key(partitions[0])}
    return text % values
