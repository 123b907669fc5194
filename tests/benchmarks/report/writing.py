"""Write the results, the plots and the page, and the core of the table into the project's README."""

from __future__ import annotations

from pathlib import Path

from example_project.environment.layout import ROOT

from . import tables
from .results import BROKERS, Results

FILE = "results.json"
PAGE = "README.md"
BEGIN, END = "<!-- results of python -m tests.benchmarks -->", "<!-- end of results -->"
"""The text between these lines is generated."""
INTRODUCTION = (
    "On the left, one worker drains messages of 300 bytes. On the right, 100 a second are published, and the time is"
    " from the return of\n`publish` to the handler; 0 means before it. Worker and server share two cores, and commits"
    " are durable:\n[benchmarks][docs/benchmarks/README.md], [scaling][docs/explanation/scaling.md]. Celery uses no"
    " database server, so its columns are equal."
)
DOCS = ROOT / "docs" / "benchmarks"


def write(results: Results, directory: Path) -> None:
    """Write everything to ``directory``. If this is ``docs/benchmarks``, also write tables into two other pages."""
    from . import plots  # It needs a package of the extra ``bench``.

    results.save(directory / FILE)
    images = plots.write(results, directory)
    page = directory / PAGE
    if not page.exists():
        page.write_text(f"{BEGIN}\n{END}\n")
    replace(page, text(results, images))
    if directory.resolve() == DOCS:
        curves = [f"![{name[:-4]}](../benchmarks/{name})" for name in images if name.startswith("by-")]
        replace(
            ROOT / "docs" / "explanation" / "scaling.md",
            "\n\n".join([tables.curves(results).strip() or "Not measured yet.", *curves]),
        )
        replace(ROOT / "README.md", f"{INTRODUCTION}\n\n{tables.overview(results)}")


def replace(file: Path, new: str) -> None:
    """Replace the text between the two marks. Raises ``ValueError`` if the file lacks one of them."""
    old = file.read_text()
    if BEGIN not in old or END not in old.partition(BEGIN)[2]:
        raise ValueError(f"{file} has no lines {BEGIN!r} and {END!r}: add them where the results belong")
    before, _, rest = old.partition(BEGIN)
    after = rest.partition(END)[2]
    file.write_text(f"{before}{BEGIN}\n\n{new.strip()}\n\n{END}{after}")


def text(results: Results, images: list[str]) -> str:
    parts = [_machine(results), tables.core(results), *(f"![{name[:-4]}]({name})" for name in images)]
    if targets := tables.targets(results):
        parts += ["### Targets", "Missed targets are bold. The profiles of missed drains follow.", targets]
    cores = int(results.machine["cores"])
    for kind in tables.PRODUCTS:
        figures = results.measured(kind)
        if not figures:
            continue
        found = [
            tables.drains(figures, cores),
            tables.processes(figures),
            tables.publishing(figures),
            tables.waking(figures),
            tables.floors(figures),
            tables.latencies(results, kind),
            tables.idle(figures),
            tables.peers(figures),
            tables.jobs(figures),
            tables.scales(figures),
        ]
        parts += [f"### {tables.title(results, kind)}", *(each for each in found if each)]
        parts += _profiles(results, kind)
    if curves := tables.curves(results):
        parts += ["### Curves", curves]
    if brokers := tables.peers(results.measured(BROKERS)):
        parts += ["### Peers with a broker", brokers]
    if results.missing:
        reasons = [f"- {name}: not available: {reason}" for name, reason in results.missing.items()]
        parts += ["### Not measured", "\n".join(reasons)]
    return "\n\n".join(part.strip() for part in parts)


def _machine(results: Results) -> str:
    found = results.machine
    scenarios = [one for section in results.sections.values() for one in section.values() if one.rounds]
    rounds = sorted({len(one.rounds) for one in scenarios})
    plural = "" if rounds == [1] else "s"
    commits = sorted({one.commit for one in scenarios})
    days = sorted({one.measured for one in scenarios})
    processors = sorted({one.processor for one in scenarios})
    servers = ", ".join(f"{tables.PRODUCTS[kind]} {version}" for kind, version in results.servers.items())
    sizes = sorted({one.size for one in scenarios} - {1.0})
    small = f" **A trial with a part of the messages: {', '.join(map(str, sizes))}.**" if sizes else ""
    return (
        f"Measured on {' and '.join(days)} at commit {', '.join(commits)}, on {found['cores']} cores"
        f" ({' or '.join(processors)}, {found['memory']}), {found['system']}, Python {found['python']}, Django"
        f" {found['django']}; {servers}. Medians of {' or '.join(map(str, rounds))} round{plural}.{small}"
    )


def _profiles(results: Results, kind: str) -> list[str]:
    """Return what the threads do in each drain that misses a target."""
    parts = []
    missed = tables.missed(results.measured(kind))
    for name, lines in results.profiles.get(kind, {}).items():
        rows = [[thread, f"`{what}`", f"{part:.2f}"] for thread, what, part in lines]
        if rows and name in missed:
            parts.append(f"<details><summary>Profile: {name}</summary>\n")
            parts.append(tables.table(["Thread", "Innermost function", "part of the time"], rows))
            parts.append("</details>")
    return parts
