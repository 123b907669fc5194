"""The Grafana dashboard and the alert rules in ``docs/monitoring``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from django_mqueue import publish, subscribe
from django_mqueue.instruments import INSTRUMENTS
from django_mqueue.metrics.workers import OTHER_COUNT, WorkerCounts
from example_project.environment.processes import run
from tests.docs_and_example.docs.blocks import ROOT
from tests.factories import MessageFactory

from .promtool import promtool
from .scraping import collected

MONITORING = ROOT / "docs" / "monitoring"
RULES, TESTS, DASHBOARD = (
    MONITORING / name for name in ("alerts.yml", "alerts_test.yml", "grafana-dashboard.json")
)
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
ALARMS = (ROOT / "docs" / "how-to" / "set-alarms.md").read_text()


def named(text: str) -> set[str]:
    """Return the metrics that a text names."""
    return set(re.findall(r"\bmqueue_[a-z_]+", text))


def of_workers() -> set[str]:
    """Return the names of the series of workers."""
    counters = {one.name for one in (*INSTRUMENTS, OTHER_COUNT) if not one.buckets}
    histograms = {one.name for one in INSTRUMENTS if one.buckets}
    return counters | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", [RULES, TESTS, DASHBOARD], ids=lambda path: path.name)
def test_each_metric_exists_in_the_output(path: Path) -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    MessageFactory.create(topic="old")  # No group is registered: it is a retention blocker.
    assert named(path.read_text()) - collected().names - of_workers() == set()


@pytest.mark.django_db(transaction=True)
def test_the_reference_has_each_metric_with_its_labels() -> None:
    subscribe("orders", "billing")
    MessageFactory.create(topic="old")
    rows = dict(re.findall(r"^\| `(mqueue_[a-z_]+)` \| ([^|]*?) ?\|", REFERENCE, re.MULTILINE))
    output = collected()
    gauges = {
        name: {label for found, has in output if found == name for label, _ in has} for name in output.names
    }
    measured = {one.name: set(one.labels) for one in (*INSTRUMENTS, OTHER_COUNT)}
    assert {name: set(re.findall(r"\w+", labels)) for name, labels in rows.items()} == gauges | measured
    for one in INSTRUMENTS:
        assert f"`{one.telemetry}`" in REFERENCE, one.telemetry


def test_the_names_of_workers_are_those_of_their_files(tmp_path: Path) -> None:
    from .test_instruments import read

    counts = WorkerCounts(tmp_path, "w")
    for one in INSTRUMENTS:
        counts.record(one, 1, one.labels, "")
    counts.close()
    assert read(tmp_path).names == of_workers()


def test_the_dashboard_has_unique_panels_that_fill_its_width() -> None:
    document = json.loads(DASHBOARD.read_text())
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert all(panel.get("targets") or panel["type"] == "row" for panel in panels)


def test_the_how_to_explains_each_alarm() -> None:
    alarms = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert set(re.findall(r"`(MQueue\w+)`", ALARMS)) == alarms
    assert set(re.findall(r"alertname: (\w+)", TESTS.read_text())) == alarms, "each alarm has a test"


@pytest.mark.long
@pytest.mark.once
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    """Each alarm fires in its situation, and not before."""
    program = promtool()
    run([program, "check", "rules", RULES])
    run([program, "test", "rules", TESTS])
