"""Forms and fields that operations and pages share: names, partitions, offsets, dates and times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.translation import gettext as _

from ...policy import names
from ...policy.message_query import OFFSET_MAX as OFFSET_MAX


def parse_number(text: str) -> int | None:
    """Return the offset or primary key that a URL holds, or None if the text is no such number."""
    found = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return found if found is not None and found <= OFFSET_MAX else None


def _validator(check: Callable[[str], object]) -> Callable[[str], None]:
    """Return a validator that reports the ``TypeError`` or ``ValueError`` of ``check``."""

    def validate(text: str) -> None:
        try:
            check(text)
        except (TypeError, ValueError) as problem:
            raise ValidationError(str(problem)) from None

    return validate


def name_field(argument: str, limit: int, **kwargs: Any) -> forms.CharField:
    """Return a field for a name that the queue accepts. ``argument``: the name of the argument in the error's text."""
    check = partial(names.check_name, argument, limit=limit)
    return forms.CharField(strip=False, validators=[_validator(check)], **kwargs)


def partition_field(**kwargs: Any) -> forms.CharField:
    """Return a field for a key, or for a partition of keyless messages, whose name begins with a space."""
    return forms.CharField(strip=False, validators=[_validator(names.check_partition)], **kwargs)


def _in_zone() -> str:
    return _("In the time zone %(zone)s.") % {"zone": timezone.get_current_timezone_name()}


IN_ZONE = lazy(_in_zone, str)()
"""A help text for ``Moment``: the time zone in which the page reads it."""


class Moment(forms.DateTimeField):
    """An aware date and time of the current time zone, to the second, also in projects without ``USE_TZ``."""

    widget = forms.DateTimeInput({"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")

    def prepare_value(self, value: Any) -> Any:
        """Return a datetime in ISO 8601, with its time zone."""
        return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value

    def to_python(self, value: Any) -> datetime | None:
        """Refuse a time that a clock change skips or repeats, as Django does with ``USE_TZ``."""
        found = super().to_python(value)
        if found is None or timezone.is_aware(found):
            return found
        zone = timezone.get_current_timezone()
        if zone.utcoffset(found.replace(fold=1 - found.fold)) != zone.utcoffset(found):
            raise ValidationError(
                _("This time does not exist, or occurs twice, in the time zone %(zone)s. Give another time.")
                % {"zone": zone}
            )
        return found.replace(tzinfo=zone)


class TopicForm(forms.Form):
    """The topic that a link or an earlier form names. Topics of scheduled messages and replies are refused."""

    topic = forms.CharField(
        strip=False,
        widget=forms.HiddenInput,
        validators=[_validator(names.check_topic)],
    )


class GroupForm(TopicForm):
    group = name_field("group", names.GROUP_MAX, widget=forms.HiddenInput)
