"""The exported flights as an analyst reads them: with Arrow alone, without Spark and without the queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from .hours import Hours

COLUMNS = "headers,payload"


def carriers_of(run_id: int, folder: Path) -> Counter[str]:
    """Return the number of flights of each carrier in one run."""
    found = Counter[str]()
    for path in sorted(folder.glob("*.parquet")):
        for rows in pq.ParquetFile(path).iter_batches():
            for headers, payload in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                if json.loads(headers)["run"] == run_id:
                    found[json.loads(payload)["carrier"].rstrip(" ")] += 1
    return found


def different_carriers(hours: Hours, have: Counter[str]) -> Iterator[str]:
    """Yield a line for each carrier whose number of flights differs from the sum over its hours."""
    want = Counter[str]()
    for (carrier, _), totals in hours.items():
        want[carrier] += totals.flights
    for carrier in sorted(want.keys() | have.keys()):
        if want[carrier] != have[carrier]:
            yield f"{carrier}: {have[carrier]:,} flights, should be {want[carrier]:,}"
