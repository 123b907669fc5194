"""Scrape metrics, as Prometheus does."""

from __future__ import annotations

import re
import urllib.request

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from django_mqueue.metrics import DatabaseCollector
from tests.support.processes import Worker, wait_until

Series = tuple[str, frozenset[tuple[str, str]]]


class Samples(dict[Series, float]):
    """The values of a scrape. ``found("name", topic="orders")`` is the sum of all series with these labels."""

    def __call__(self, name: str, **labels: str) -> float:
        wanted = labels.items()
        values = [v for (found, has), v in self.items() if found == name and wanted <= dict(has).items()]
        assert values, f"there is no {name} with {labels}"
        return sum(values)

    def values_of(self, name: str, label: str) -> set[str]:
        """Return the values of a label in all series of a metric."""
        return {dict(has)[label] for found, has in self if found == name}

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self}


def parsed(text: str) -> Samples:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = Samples({(one.name, frozenset(one.labels.items())): one.value for one in samples})
    assert len(found) == len(samples), "a series occurs twice"
    return found


def collected(collector: DatabaseCollector | None = None) -> Samples:
    """Return the metrics of the database, in this process."""
    registry = CollectorRegistry()
    registry.register(collector or DatabaseCollector(max_age=0))
    return parsed(generate_latest(registry).decode())


def url_of(worker: Worker) -> str:
    """Return the URL that a worker prints at its start."""
    found = wait_until(lambda: re.search(r"^metrics: (\S+)$", worker.output(), re.M), "it prints its URL")
    return found[1].replace("0.0.0.0", "127.0.0.1")


def scraped(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        return parsed(response.read().decode())
