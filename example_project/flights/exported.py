"""The exported flights as an analyst reads them: by Arrow alone, without Spark and without the queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from .hours import Hours

COLUMNS = "headers,payload"


def carriers_of(run_id: int, folder: Path) -> Counter[str]:
    """The flights of each carrier, those of one run alone."""
    found = Counter[str]()
    for path in sorted(folder.glob("*.parquet")):
        for rows in pq.ParquetFile(path).iter_batches():
            for headers, payload in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                if json.loads(headers)["run"] == run_id:
                    found[json.loads(payload)["carrier"].rstrip(" ")] += 1
    return found


def different_carriers(hours: Hours, have: Counter[str]) -> Iterator[str]:
    """Each carrier that has not as many as the hours add up to, as a line of text."""
    want = Counter[str]()
    for (carrier, _), totals in hours.items():
        want[carrier] += totals.flights
    for carrier in sorted(want.keys() | have.keys()):
        if want[carrier] != have[carrier]:
            yield f"{carrier}: {have[carrier]:,} flights, should be {want[carrier]:,}"
