"""The example's commands in real processes, from publishing to the final check."""

from __future__ import annotations

import signal

import pytest

from tests.docs_and_example.example.conftest import Example
from tests.support.processes import wait_until

RUN = ("flights", "--flights", "2000", "--workers", "2", "--threads", "2")


def test_flights_go_through_and_come_out_as_the_file_says_and_a_change_is_noticed(example: Example) -> None:
    code, output = example.run(*RUN)
    assert code == 0, output
    assert "Equal to a plain computation over the file: 2,000 flights" in output
    assert "UA United Air Lines Inc." in output

    example.sql("UPDATE flights_delay SET departure = departure + 1 WHERE carrier = 'UA' LIMIT 1")
    example.sql("UPDATE flights_aircraft SET legs = legs - 1 WHERE tail = 'N725MQ'")
    code, output = example.run("check_flights")
    assert code == 1
    assert "Not as it should be, in 2 places" in output
    assert "board: aircraft N725MQ: LastLeg(legs=" in output
    assert "delays: carrier UA: CarrierTotals(flights=" in output


@pytest.mark.exhaustive
def test_an_interrupted_run_can_be_followed_by_another(example: Example) -> None:
    with example.start("flights", "--flights", "8000", "--threads", "2") as interrupted:
        assert interrupted.stdout is not None
        said = next(line for line in interrupted.stdout if not line.startswith("published "))  # Its progress.
        assert "Published 8,000 flights" in said
        wait_until(lambda: _some_handled(example), "a first flight on the board")
        interrupted.send_signal(signal.SIGINT)
        output = interrupted.stdout.read()
    assert interrupted.returncode == 130, output
    assert "interrupted" in output

    code, output = example.run(*RUN)
    assert code == 0, output
    assert "Equal to a plain computation over the file: 2,000 flights" in output


def _some_handled(example: Example) -> bool:
    code, output = example.run(
        "shell",
        "-v",
        "0",
        "-c",
        "from example_project.flights.models import *; print(Aircraft.objects.count())",
    )
    assert code == 0, output
    return int(output.split()[-1]) > 0


def test_the_check_needs_a_published_run(example: Example) -> None:
    code, output = example.run("check_flights")
    assert code == 1
    assert "no flights were published yet" in output


@pytest.mark.parametrize("wrong", ["0", "-5", "336777", "many"])
def test_an_impossible_number_of_flights_is_refused(wrong: str) -> None:
    code, output = Example("mysql://nobody@127.0.0.1:1/none").run("flights", "--flights", wrong)
    assert code == 2
    assert "must be a number from 1 to 336776, or all" in output
