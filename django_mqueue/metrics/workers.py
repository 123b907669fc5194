"""The measurements of worker processes, in files that each of the processes can read.

A worker adds to counters in two files of its own, which it maps into memory. They are files of prometheus-client's mode
for several processes, but their names come from the worker's name, not from its process. So a child process that
replaces another continues its counters: they never go back, and the number of files does not grow.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.utils import floatToGoString

from ..instruments import INSTRUMENTS, PUBLISHED, Instrument
from .snapshot import GROUPS_MAX

OTHER = "(other)"
"""The label that replaces the topic and the group if there are more than ``GROUPS_MAX`` pairs of them."""
OTHER_COUNT = Instrument(
    "mqueue_other_measurements_total", "", f"Measurements that are counted under {OTHER}.", ()
)
Labels = tuple[str, ...]
Pair = tuple[str, str]


class WorkerCounts:
    """The measurements of one worker: a receiver for ``instruments``.

    ``worker``: its name. Only one process at a time has this name.

    ``pairs``: (topic, group) of its handlers. Their counters begin with 0, for each reason, so that Prometheus sees the
    first increase.
    """

    def __init__(self, directory: Path, worker: str, pairs: Sequence[Pair] = ()) -> None:
        place = hashlib.sha256(worker.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._lock = threading.Lock()
        self._is_closed = False
        self._counters = MmapedDict(str(directory / f"counter_{place}.db"))
        self._histograms = MmapedDict(str(directory / f"histogram_{place}.db"))
        self._keys: dict[tuple[Instrument, Labels], list[str]] = {}
        self._known: dict[bool, set[Pair]] = {False: set(), True: set()}
        """The labels with metrics: topics alone, and pairs of topic and group."""
        for file in self._files:
            for key, *_ in file.read_all_values():
                pair = _pair(json.loads(key)[2])
                self._known[bool(pair[1])].add(pair)
        for instrument in INSTRUMENTS:
            if instrument is not PUBLISHED:
                firsts: Sequence[Labels] = pairs if "group" in instrument.labels else [()]
                lasts: Sequence[Labels] = [(reason,) for reason in instrument.reasons] or [()]
                for first, last in product(firsts, lasts):
                    self.record(instrument, 0, (*first, *last), "")
        self._add(OTHER_COUNT, 0, ())

    @property
    def _files(self) -> tuple[MmapedDict, MmapedDict]:
        return self._counters, self._histograms

    def record(self, instrument: Instrument, value: float, labels: Labels, error: str) -> None:
        with self._lock:
            if self._is_closed:
                return
            bounded = self._bounded(instrument, labels)
            if bounded != labels and value:
                self._add(OTHER_COUNT, 1, ())
            self._add(instrument, value, bounded)

    def _bounded(self, instrument: Instrument, labels: Labels) -> Labels:
        """Return the labels, with ``OTHER`` as topic and group if there are too many pairs already."""
        given = dict(zip(instrument.labels, labels, strict=True))
        pair = _pair(given)
        known = self._known[bool(pair[1])]
        if not pair[0] or pair in known:
            return labels
        if len(known) < GROUPS_MAX:
            known.add(pair)
            return labels
        return tuple(OTHER if name in ("topic", "group") else text for name, text in given.items())

    def _add(self, instrument: Instrument, value: float, labels: Labels) -> None:
        if (keys := self._keys.get((instrument, labels))) is None:
            keys = self._keys[instrument, labels] = _keys(instrument, labels)
        if not instrument.buckets:
            _increase(self._counters, keys[0], value)
        elif not value:  # A value of 0 only creates the series.
            for key in keys:
                _increase(self._histograms, key, 0)
        else:
            place = next((n for n, bound in enumerate(instrument.buckets) if value <= bound), -2)
            _increase(self._histograms, keys[place], 1)
            _increase(self._histograms, keys[-1], value)

    def close(self) -> None:
        """Close the files. Measurements of threads that still run are dropped."""
        with self._lock:
            self._is_closed = True
            for file in self._files:
                file.close()


def _pair(labels: dict[str, str]) -> Pair:
    return labels.get("topic", ""), labels.get("group", "")


def _increase(file: MmapedDict, key: str, value: float) -> None:
    file.write_value(key, file.read_value(key)[0] + value, 0.0)


def _keys(instrument: Instrument, labels: Labels) -> list[str]:
    """Return the key of a counter; or of each bucket of a histogram, the last one without a bound, and of its sum."""
    name, names = instrument.name.removesuffix("_total"), list(instrument.labels)
    if not instrument.buckets:
        return [mmap_key(name, instrument.name, names, list(labels), instrument.help)]
    bounds = [floatToGoString(bound) for bound in (*instrument.buckets, float("inf"))]
    return [
        *(
            mmap_key(name, f"{name}_bucket", [*names, "le"], [*labels, bound], instrument.help)
            for bound in bounds
        ),
        mmap_key(name, f"{name}_sum", names, list(labels), instrument.help),
    ]
