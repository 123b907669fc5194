"""The results as SVG plots. They contain no script, so that a page may show them as images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pygal
from pygal.style import Style

from tests.benchmarks.peers.catalogue import DATABASE, PEERS
from tests.benchmarks.speed.figures import PERCENTILES
from tests.benchmarks.speed.scenarios import DRAINS, RATES
from tests.benchmarks.targets import PLAIN, RATE

from .results import BROKERS, Results
from .tables import PRODUCTS, curve_names, number, title

LOOK = Style(
    background="white",
    plot_background="white",
    font_family="sans-serif",
    colors=("#2166ac", "#f4a582", "#5aae61", "#762a83"),
    label_font_size=12,
    major_label_font_size=12,
    legend_font_size=13,
    title_font_size=17,
    value_font_size=11,
)


def write(results: Results, directory: Path) -> list[str]:
    """Write the plots, and return the names of the files."""
    kinds = [kind for kind in PRODUCTS if results.measured(kind)]
    files = {
        "rates.svg": _rates(results, kinds),
        "plain-sql.svg": _of_plain_sql(results, kinds),
        **{
            f"by-{by.replace(' ', '-')}.svg": _curve(results, kinds, by)
            for by, names in curve_names().items()
            if any(name in results.measured(kind) for kind in kinds for name in names.values())
        },
        **{f"latency-{rate}.svg": _latency(results, kinds, rate) for rate in RATES},
    }
    for name, chart in files.items():
        chart.render_to_file(str(directory / name))
    return list(files)


def _rates(results: Results, kinds: list[str]) -> Any:
    sections = {kind: results.measured(kind) for kind in kinds}
    brokers = results.measured(BROKERS)
    names = [drain.name for drain in DRAINS] + [peer.name for peer in PEERS]
    names = [name for name in names if name in brokers or any(name in found for found in sections.values())]
    names.reverse()  # The first bar is at the bottom.
    peers = {peer.name for peer in PEERS}
    labels = [name if name in peers else f"django_mqueue, {name}" for name in names]
    chart = _chart("Messages per second, drained", labels)
    for kind, found in sections.items():
        chart.add(title(results, kind), [found.get(name, {}).get(RATE) for name in names])
    if brokers:
        chart.add("the broker alone", [brokers.get(name, {}).get(RATE) for name in names])
    return chart


def _of_plain_sql(results: Results, kinds: list[str]) -> Any:
    sections = {kind: results.measured(kind) for kind in kinds}
    names = list(dict.fromkeys(name for found in sections.values() for name in found if PLAIN in found[name]))
    names.reverse()
    chart = _chart("Part of the rate of plain SQL", names)
    for kind, found in sections.items():
        chart.add(title(results, kind), [found.get(name, {}).get(PLAIN) for name in names])
    return chart


def _latency(results: Results, kinds: list[str], rate: int) -> Any:
    rows: dict[str, list[float | None]] = {}
    for kind in kinds:
        found = results.measured(kind)
        if ours := found.get(f"latency at {rate}/s"):
            rows[f"django_mqueue, {title(results, kind)}"] = [ours[f"p{part} ms"] for part in PERCENTILES]
        for peer in PEERS:
            if peer.store == DATABASE and (figures := found.get(peer.name)):
                name = f"{peer.name}, {title(results, kind)}"
                rows[name] = [figures.get(f"p{part} ms at {rate}/s") for part in PERCENTILES]
    for name, figures in results.measured(BROKERS).items():
        rows[name] = [figures.get(f"p{part} ms at {rate}/s") for part in PERCENTILES]
    rows = dict(reversed(rows.items()))
    chart = _chart(f"Latency at {rate} messages a second, ms (logarithmic)", list(rows), logarithmic=True)
    chart.y_labels = [1, 10, 100, 1000, 10_000]
    for place, part in enumerate(PERCENTILES):
        chart.add(f"p{part}", [values[place] for values in rows.values()])
    return chart


def _curve(results: Results, kinds: list[str], by: str) -> Any:
    names = curve_names()[by]
    chart = pygal.Line(
        style=LOOK,
        width=900,
        height=360,
        title=f"Messages per second by {by}",
        legend_at_bottom=True,
        no_data_text="not measured",
        include_x_axis=True,
        js=[],
    )
    chart.x_labels = [str(value) for value in names]
    for kind in kinds:
        found = results.measured(kind)
        chart.add(title(results, kind), [found.get(name, {}).get(RATE) for name in names.values()])
    chart.add_xml_filter(_without_scripts)
    return chart


def _chart(heading: str, names: list[str], *, logarithmic: bool = False) -> Any:
    chart = pygal.HorizontalBar(
        style=LOOK,
        width=900,
        height=130 + 44 * max(len(names), 2),
        title=heading,
        legend_at_bottom=True,
        print_values=True,
        value_formatter=lambda value: "" if value is None else number(value),
        logarithmic=logarithmic,
        zero=int(logarithmic),
        truncate_label=-1,
        max_scale=8,
        no_data_text="not measured",
        js=[],
    )
    chart.x_labels = names
    chart.add_xml_filter(_without_scripts)
    return chart


def _without_scripts(root: Any) -> Any:
    for parent in list(root.iter()):
        for child in list(parent):
            if str(child.tag).endswith("script"):  # The tag of a comment is a function.
                parent.remove(child)
    return root
