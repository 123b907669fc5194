"""The units for systemd: systemd accepts them, and their commands start and stop as the units say.

systemd itself does not run here: no test proves its sandbox (``ProtectSystem=`` and the like) or its restarts.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_mqueue import publish
from django_mqueue.models import SubscriberHeartbeat
from tests.support.processes import Worker, wait_until
from tests.support.shop.models import Door, Step

from .files import DEPLOY, ENVIRONMENT_FILE, PYTHON, Unit

SYSTEMD = DEPLOY / "systemd"
NAMES = [
    "mqueue-worker@1.service", "mqueue-workers.target", "mqueue-archive.service", "mqueue-archive.timer",
]  # fmt: skip
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the units with this interpreter and an environment file that exists. systemd checks both."""
    (tmp_path / "mqueue.env").write_text((SYSTEMD / "mqueue.env").read_text())
    for unit in SYSTEMD.glob("mqueue-*"):
        text = unit.read_text().replace(PYTHON, sys.executable)
        (tmp_path / unit.name).write_text(text.replace(ENVIRONMENT_FILE, str(tmp_path / "mqueue.env")))
    return tmp_path


def analyze(*arguments: str, cwd: Path) -> tuple[int, str]:
    found = subprocess.run(["systemd-analyze", *arguments], cwd=cwd, capture_output=True, text=True)
    return found.returncode, found.stdout + found.stderr


@needs_systemd
@pytest.mark.once
def test_systemd_accepts_the_units_without_a_word(installed: Path) -> None:
    """An option that it does not know is only a line of text for it."""
    assert analyze("verify", *(f"./{name}" for name in NAMES), cwd=installed) == (0, "")
    broken = installed / "mqueue-archive.service"
    broken.write_text(broken.read_text().replace("KillMode=mixed", "KilMode=mixed"))
    assert "KilMode" in analyze("verify", f"./{broken.name}", cwd=installed)[1]


@needs_systemd
@pytest.mark.once
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".service")])
def test_systemd_rates_the_units_as_hardened(name: str, installed: Path) -> None:
    """Its rating is from 0 to 10, and over 9 without any option."""
    code, text = analyze(
        "security", "--offline=yes", "--no-pager", "--threshold=25", f"./{name}", cwd=installed
    )
    assert code == 0, text


@pytest.mark.once
def test_the_worker_stops_gracefully_and_starts_again() -> None:
    service, unit = Unit("mqueue-worker@.service").service, Unit("mqueue-worker@.service").sections["Unit"]
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert (service["Restart"], unit["StartLimitIntervalSec"]) == ("always", "0")
    assert unit["PartOf"] == Unit("mqueue-worker@.service").sections["Install"]["WantedBy"] == NAMES[1]
    assert "PrivateTmp" not in service, "publishers of this machine could not wake the workers"
    assert Unit("mqueue-archive.timer").sections["Timer"]["Persistent"] == "true"


@pytest.mark.once
@pytest.mark.parametrize("name", ["mqueue-worker@.service", "mqueue-archive.service"])
def test_the_environment_file_sets_what_the_unit_does_not(name: str) -> None:
    variables = re.findall(r"^(\w+)=", (SYSTEMD / "mqueue.env").read_text(), re.MULTILINE)
    assert variables == ["DJANGO_SETTINGS_MODULE"]
    assert "DJANGO_SETTINGS_MODULE" not in Unit(name).service["Environment"]


@pytest.fixture
def two_workers() -> Iterator[list[Worker]]:
    """Two instances of the unit. Each handles a message that waits at a door."""
    for n, key in enumerate(["a", "b"]):
        publish("orders", {"n": n, "do": "wait", "door": "exit"}, key=key)
    workers: list[Worker] = []
    try:
        for instance in ("1", "2"):
            workers.append(Unit("mqueue-worker@.service", instance).start("orders:billing", threads="1"))
            wait_until(lambda: Step.objects.filter(what="start").count() == len(workers), "its handler runs")
        yield workers
    except BaseException as error:
        error.add_note("\n".join(worker.output()[-4000:] for worker in workers))
        raise
    finally:
        for worker in workers:
            worker.close()


@pytest.mark.django_db(transaction=True)
def test_instances_stop_by_the_units_signal_and_by_its_reload(two_workers: list[Worker]) -> None:
    """Each finishes its handler and exits with 0. With its name, the next one has the partition at once."""
    unit = Unit("mqueue-worker@.service", "1")
    names = SubscriberHeartbeat.objects.filter(consumer_group="billing", deregistered_at=None)
    assert set(names.values_list("subscriber_name", flat=True)) == {"host-1", "host-2"}
    first, second = two_workers
    first.send(signal.Signals[unit.service["KillSignal"]])
    command = unit.words("ExecReload", MAINPID=str(second.pid))
    assert subprocess.run(command, timeout=60).returncode == 0
    publish("orders", {"n": 2}, key="a")
    Door.objects.create(name="exit")
    assert [worker.wait() for worker in two_workers] == [0, 0]
    assert Step.objects.filter(what="end").count() == 2
    again = unit.start("orders:billing")
    two_workers.append(again)
    wait_until(lambda: Step.objects.filter(what="end", number=2).exists(), "the new process continues")
    assert again.stop(signal.Signals[unit.service["KillSignal"]]) == 0
    assert Step.objects.filter(what="start").count() == 3, "none was repeated"
