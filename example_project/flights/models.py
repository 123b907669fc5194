"""The publisher's own table, and the tables of the groups' results.

The groups' tables do not refer to the publisher's tables: a group knows only its messages. Each row has the id of its
run, so that a late message of an earlier run cannot disturb the current run.
"""

from __future__ import annotations

from secrets import token_hex

from django.db import models

BINARY = "utf8mb4_bin"
"""Spark and Python distinguish ``AA`` from ``aa``. A column with unique or grouped values must do the same."""


def new_token() -> str:
    return token_hex(4)


class Run(models.Model):
    """One pass through the flights."""

    token = models.CharField(max_length=8, default=new_token, help_text="Begins the ids of its messages.")
    flights = models.PositiveIntegerField(help_text="How many flights it publishes.")
    started_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, help_text="When the last one was; empty until then.")

    def __str__(self) -> str:
        return f"run {self.pk} of {self.flights} flights"


class Flight(models.Model):
    """The publisher's own row of a flight, stored in the transaction that publishes it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    row = models.PositiveIntegerField(help_text="Its row of the data, from 1.")
    carrier = models.CharField(max_length=2)
    number = models.PositiveIntegerField()
    tail = models.CharField(max_length=8, blank=True, help_text="The aircraft; empty where unknown.")
    origin = models.CharField(max_length=3)
    destination = models.CharField(max_length=3)
    scheduled = models.DateTimeField(help_text="Departure as planned.")
    departure_delay = models.IntegerField(null=True, help_text="Minutes; negative is early.")
    arrival_delay = models.IntegerField(null=True, help_text="Minutes; negative is early.")
    cancelled = models.BooleanField()

    def __str__(self) -> str:
        return f"{self.carrier}{self.number} {self.origin} to {self.destination}"


class Aircraft(models.Model):
    """``board``: the number of legs that an aircraft has flown, and its last known leg."""

    run_id = models.PositiveBigIntegerField()
    tail = models.CharField(max_length=8, db_collation=BINARY)
    legs = models.PositiveIntegerField()
    last_leg = models.CharField(max_length=60, help_text="Flight, from, to and when it was to leave.")
    redelivered = models.PositiveIntegerField(
        default=0, help_text="Legs that came again and changed nothing."
    )

    class Meta:
        verbose_name_plural = "aircraft"
        constraints = [models.UniqueConstraint(fields=["run_id", "tail"], name="flights_aircraft_tail")]

    def __str__(self) -> str:
        return f"{self.tail}: leg {self.legs}"


class Unassigned(models.Model):
    """``board``: a flight whose aircraft is unknown."""

    offset = models.PositiveBigIntegerField(primary_key=True, help_text="The message's.")
    run_id = models.PositiveBigIntegerField()
    flight = models.CharField(max_length=60)
    redelivered = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "unassigned"

    def __str__(self) -> str:
        return self.flight


class Violation(models.Model):
    """``board``: a leg that did not follow the previous leg. There should never be any."""

    run_id = models.PositiveBigIntegerField()
    tail = models.CharField(max_length=8)
    expected = models.PositiveIntegerField()
    leg = models.PositiveIntegerField()
    offset = models.PositiveBigIntegerField()
    noticed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.tail}: leg {self.leg} where {self.expected} was next"


class Delay(models.Model):
    """``delays``: the delays in one message. The offset is the key, so a repeated delivery counts once."""

    offset = models.PositiveBigIntegerField(primary_key=True, help_text="The message's.")
    run_id = models.PositiveBigIntegerField()
    carrier = models.CharField(max_length=2, db_collation=BINARY)
    departure = models.IntegerField(null=True)
    arrival = models.IntegerField(null=True)
    cancelled = models.BooleanField()
    redelivered = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.carrier}: {self.departure} and {self.arrival} minutes"


class CarrierHour(models.Model):
    """``carriers``: one carrier's flights of one hour, by their scheduled departure."""

    run_id = models.PositiveBigIntegerField()
    carrier = models.CharField(max_length=2, db_collation=BINARY)
    hour = models.DateTimeField(help_text="When it begins.")
    flights = models.PositiveIntegerField()
    delayed = models.PositiveIntegerField(help_text="Departed 15 minutes late or more.")
    departed = models.PositiveIntegerField(help_text="Not cancelled.")
    delay = models.IntegerField(help_text="Minutes, of all that departed.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run_id", "carrier", "hour"], name="flights_carrier_hour")
        ]

    def __str__(self) -> str:
        return f"{self.carrier}, {self.hour:%Y-%m-%d %H:%M}"

    @property
    def mean_delay(self) -> float | None:
        """The mean delay in minutes, or None if no flight departed."""
        return self.delay / self.departed if self.departed else None


class CarrierStream(models.Model):
    """``carriers``: the last batch that was applied to the hours. It changes in the same transaction as they do."""

    run_id = models.PositiveBigIntegerField(primary_key=True)
    query = models.CharField(max_length=36, help_text="Of the streaming query, as its checkpoint has it.")
    batch = models.BigIntegerField()
    applied_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"batch {self.batch} of run {self.run_id}"
