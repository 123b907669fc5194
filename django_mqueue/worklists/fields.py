"""A model field for moments: epoch milliseconds in the table, an aware UTC datetime in Python."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.dateparse import parse_datetime

from ..policy.durations import moment, moment_ms

if TYPE_CHECKING:
    _Field = models.BigIntegerField[datetime | None, Any]
else:
    _Field = models.BigIntegerField


class MomentField(_Field):
    """Epoch milliseconds of the database's clock. Its value in Python is an aware UTC datetime."""

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> datetime | None:
        return None if value is None else moment(value)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and (found := parse_datetime(value)) is not None:
            return found  # A fixture, as ``dumpdata`` writes it.
        return value if value is None or isinstance(value, datetime) else moment(int(value))

    def get_prep_value(self, value: Any) -> Any:
        return moment_ms(self.name, value) if isinstance(value, datetime) else super().get_prep_value(value)
