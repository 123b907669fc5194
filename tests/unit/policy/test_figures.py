"""Sums of figures."""

from __future__ import annotations

import pytest

from django_mqueue.stats.results import ABOUT, AT_LEAST, EXACT, Figure, total

COUNTED, MORE, GUESSED = Figure(3, EXACT, 0, 3), Figure(1_000, AT_LEAST, 0, 1_000), Figure(90, ABOUT, 5, 10)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([], Figure(0)),
        ([COUNTED, COUNTED], Figure(6, EXACT, 0, 6)),
        ([COUNTED, MORE], Figure(1_003, AT_LEAST, 0, 1_003)),
        ([GUESSED, MORE, GUESSED], Figure(1_180, ABOUT, 10, 1_020)),
    ],
)
def test_a_sum_is_as_exact_as_the_least_exact_part(figures: list[Figure], expected: Figure) -> None:
    assert total(iter(figures)) == expected
