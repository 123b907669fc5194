"""The results as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.benchmarks.peers.catalogue import DATABASE, PEERS
from tests.benchmarks.speed.figures import PERCENTILES, Figures
from tests.benchmarks.speed.scenarios import (
    CURVES,
    DRAINS,
    FLOORS_NAME,
    MANY,
    PARTITIONS,
    PROCESSES,
    PUBLISHERS,
    PUBLISHERS_CURVE,
    RATES,
    WAKING,
)
from tests.benchmarks.targets import COMMITS, GATED, PLAIN, RATE, STATEMENTS, TARGETS

from .results import BROKERS, Results

COSTS = {
    STATEMENTS: "statements",
    COMMITS: "commits",
    "worker CPU ms per message": "worker CPU, ms",
    "server CPU ms per message": "server CPU, ms",
}
"""Columns by figure."""
NONE = "-"
PRODUCTS = {"mariadb": "MariaDB", "mysql": "MySQL"}


def number(value: float | None) -> str:
    """Return a number with three digits, or with all digits before the point."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def title(results: Results, kind: str) -> str:
    """Return the product and the first two parts of its version."""
    return f"{PRODUCTS[kind]} {'.'.join(results.servers[kind].split('.')[:2])}"


def core(results: Results) -> str:
    """Return the rates of this queue's scenarios, and the rate and the latency of each queue, on each server."""
    names = [drain.name for drain in DRAINS] + [PUBLISHERS[1], MANY]
    own = {f"django_mqueue, {name}": name for name in names}
    rates = _side_by_side(results, "Messages per second", own, _rate)
    heading = f"Latency at {max(RATES)} messages a second, p{PERCENTILES[0]} / p{PERCENTILES[-1]}, ms"
    latency = _side_by_side(results, heading, {"django_mqueue": f"latency at {max(RATES)}/s"}, _latency)
    return "\n".join(filter(None, (rates, latency)))


def overview(results: Results) -> str:
    """Return the table for the project's README: the rate and the latency of each queue, on each server.

    A peer with a broker has the same cells for each server.
    """
    rate = max(RATES)
    names = {
        "django_mqueue": (DRAINS[0].name, f"latency at {rate}/s"),
        "django_mqueue with `atomic=True`": ("atomic", ""),
        **{peer.name: (peer.name, peer.name) for peer in PEERS},
    }
    kinds = [kind for kind in PRODUCTS if results.measured(kind)]
    found = [{**results.measured(BROKERS), **results.measured(kind)} for kind in kinds]
    rows = []
    for queue, (drain, latency) in names.items():
        cells = [_rate(each.get(drain, {})) for each in found] + [
            _latency(each.get(latency, {})) for each in found
        ]
        if set(cells) != {NONE}:
            rows.append([queue, *cells])
    figures = ("messages/s", f"p{PERCENTILES[0]} / p{PERCENTILES[-1]} at {rate}/s, ms")
    return table(["", *(f"{title(results, kind)}: {figure}" for figure in figures for kind in kinds)], rows)


def _side_by_side(
    results: Results, heading: str, own: Mapping[str, str], cell: Callable[[Figures], str]
) -> str:
    """Return a table of this queue's scenarios and of the peers, with a column for each server.

    A peer with a broker has the same cell in each column. ``own``: scenarios of this queue by the name of the row.
    """
    kinds = [kind for kind in PRODUCTS if results.measured(kind)]
    brokers = results.measured(BROKERS)
    rows = []
    for row, name in {**own, **{peer.name: peer.name for peer in PEERS}}.items():
        cells = [cell(results.measured(kind).get(name) or brokers.get(name, {})) for kind in kinds]
        if set(cells) != {NONE}:
            rows.append([row, *cells])
    return table([heading, *(title(results, kind) for kind in kinds)], rows)


def _rate(figures: Figures) -> str:
    return number(figures.get(RATE))


def _latency(figures: Figures) -> str:
    rate = max(RATES)
    ends = (f"p{part} ms" for part in (PERCENTILES[0], PERCENTILES[-1]))
    cells = [number(figures.get(end, figures.get(f"{end} at {rate}/s"))) for end in ends]
    return " / ".join(cells) if NONE not in cells else NONE


def drains(figures: Mapping[str, Figures], cores: int) -> str:
    """Return the drains of this queue, with their limits."""
    rows = [
        [name, *_columns(figures[name], (RATE, PLAIN, *COSTS)), limit(figures[name], cores)]
        for drain in DRAINS
        if (name := drain.name) in figures
    ]
    return table(["Drain", "messages/s", PLAIN, *COSTS.values(), "limit"], rows)


def processes(figures: Mapping[str, Figures]) -> str:
    columns = (RATE, "with two processes", "ratio")
    rows = [[name, *_columns(figures[name], columns)] for name in [PROCESSES] if name in figures]
    return table(["Drain", "messages/s with one process", "with two", "ratio"], rows)


def publishing(figures: Mapping[str, Figures]) -> str:
    rows = [
        [name, *_columns(found, (RATE, PLAIN, GATED, *COSTS))]
        for name, found in figures.items()
        if name in {*PUBLISHERS.values(), MANY} and GATED in found
    ]
    columns = [name.replace("worker", "publisher") for name in COSTS.values()]
    return table(["Publish", "messages/s", PLAIN, GATED, *columns], rows)


def waking(figures: Mapping[str, Figures]) -> str:
    columns = ("microseconds", "time with wake-ups", "with one for each")
    rows = [[name, *_columns(figures[name], columns)] for name in [WAKING] if name in figures]
    head = ["Publish", "without wake-ups, µs", "with wake-ups, none sleeps", "one wake-up for each"]
    return table(head, rows)


def floors(figures: Mapping[str, Figures]) -> str:
    return table(
        ["Plain SQL", "messages/s"],
        [[name, number(rate)] for name, rate in figures.get(FLOORS_NAME, {}).items()],
    )


def peers(figures: Mapping[str, Figures]) -> str:
    names = [peer.name for peer in PEERS if peer.name in figures]
    rows = [[name, *_columns(figures[name], (RATE, "enqueued per second", *COSTS))] for name in names]
    return table(["Peer", "messages/s", "enqueued/s", *COSTS.values()], rows)


def jobs(figures: Mapping[str, Figures]) -> str:
    """Return the figures of the job queues that keep results, with a history of finished jobs."""
    columns = {
        "jobs/s": f"{RATE}, with history",
        "enqueued/s": "enqueued per second, with history",
        "enqueued in bulk/s": "enqueued in bulk per second, with history",
        "results found/s": "results per second, with history",
    }
    names = [peer.name for peer in PEERS if {*columns.values()} & figures.get(peer.name, {}).keys()]
    rows = [[name, *_columns(figures[name], tuple(columns.values()))] for name in names]
    return table(["With a million finished jobs", *columns], rows)


def latencies(results: Results, kind: str) -> str:
    """Return the latency of each queue at each rate."""
    own, brokers = results.measured(kind), results.measured(BROKERS)
    columns = [f"p{part} at {rate}/s" for rate in RATES for part in PERCENTILES]
    ours = {
        f"p{part} at {rate}/s": own.get(f"latency at {rate}/s", {}).get(f"p{part} ms")
        for rate in RATES
        for part in PERCENTILES
    }
    rows = [["django_mqueue", *(number(ours[column]) for column in columns)]]
    apart = [own.get(f"latency at {rate}/s, other host", {}) for rate in RATES]
    if any(apart):
        cells = [number(found.get(f"p{part} ms")) for found in apart for part in PERCENTILES]
        rows.append(["django_mqueue, other host", *cells])
    for peer in PEERS:
        found = (own if peer.store == DATABASE else brokers).get(peer.name)
        if found:
            figures = [f"p{part} ms at {rate}/s" for rate in RATES for part in PERCENTILES]
            rows.append([peer.name, *_columns(found, figures)])
    return table(["Latency, ms", *columns], rows)


def idle(figures: Mapping[str, Figures]) -> str:
    names = [f"idle with {count:,} partitions" for count in PARTITIONS]
    columns = ("statements per second", "worker CPU percent", "server CPU percent")
    rows = [[name, *_columns(figures[name], columns)] for name in names if name in figures]
    return table(["Idle worker", "statements/s", "worker CPU, %", "server CPU, %"], rows)


def curves(results: Results) -> str:
    """Return the rates by batch size, by threads and by connections."""
    kinds = [kind for kind in PRODUCTS if results.measured(kind)]
    rows = [
        [f"{by} {value}", *(number(results.measured(kind).get(name, {}).get(RATE)) for kind in kinds)]
        for by, names in curve_names().items()
        for value, name in names.items()
        if any(name in results.measured(kind) for kind in kinds)
    ]
    return table(["Messages per second by", *(title(results, kind) for kind in kinds)], rows)


def curve_names() -> dict[str, dict[int, str]]:
    """Return the names of the scenarios of each curve, by the value that changes."""
    drained = {by: {value: drain.name for value, drain in curve.items()} for by, curve in CURVES.items()}
    return {**drained, "publishing connections": PUBLISHERS_CURVE}


def scales(figures: Mapping[str, Figures]) -> str:
    """Return all figures of the scenarios with large numbers."""
    rows = [
        [name.partition(": ")[2], ", ".join(f"{figure} {number(value)}" for figure, value in found.items())]
        for name, found in figures.items()
        if name.startswith("scale: ")
    ]
    return table(["Large numbers", "figures"], rows)


def targets(results: Results) -> str:
    """Return each target and what was measured. A missed target is bold."""
    kinds = [kind for kind in PRODUCTS if results.measured(kind)]
    measured = {kind: results.measured(kind) for kind in kinds}
    rows = []
    for target in TARGETS:
        values = [target.value(measured[kind]) for kind in kinds]
        bound = f"{'at least' if target.least else 'at most'} {number(target.limit)}"
        cells = [
            number(value) if value is None or target.met(value) else f"**{number(value)}**"
            for value in values
        ]
        if any(value is not None for value in values):
            rows.append([target.scenario, target.name, bound, *cells])
    return table(["Scenario", "figure", "target", *(title(results, kind) for kind in kinds)], rows)


def missed(figures: Mapping[str, Figures]) -> set[str]:
    """Return the scenarios that miss a target."""
    values = {target: target.value(figures) for target in TARGETS}
    return {
        target.scenario for target, value in values.items() if value is not None and not target.met(value)
    }


def limit(figures: Figures, cores: int) -> str:
    """Return what keeps a drain from being faster, from the cores that the worker and the server use."""
    worker, server = (
        figures[RATE] * figures[f"{of} CPU ms per message"] / 1000 for of in ("worker", "server")
    )
    used = f"worker {worker:.2f}, server {server:.2f} of {cores} cores"
    if worker >= 0.9:
        return f"the worker's Python, which uses one core ({used})"
    if worker + server >= 0.9 * cores:
        return f"the machine's cores ({used})"
    return f"waiting: commits and round trips ({used})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, or nothing without rows. Numbers are aligned to the right."""
    rows = list(rows)
    if not rows:
        return ""
    aligned = ["--:" if all(map(_is_number, column)) else "---" for column in zip(*rows, strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, aligned, *rows)) + "\n"


def _columns(figures: Figures, names: Iterable[str]) -> list[str]:
    return [number(figures.get(name)) for name in names]


def _is_number(cell: str) -> bool:
    return cell == NONE or cell.translate(str.maketrans("", "", ",.*")).isdigit()
