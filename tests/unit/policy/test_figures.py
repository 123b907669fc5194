"""Sums of figures."""

from __future__ import annotations

import pytest

from django_mqueue.stats.results import ABOUT, AT_LEAST, EXACT, Figure, total

COUNTED, MORE, GUESSED = Figure(3, EXACT), Figure(1_000, AT_LEAST), Figure(90, ABOUT)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([], Figure(0)),
        ([COUNTED, COUNTED], Figure(6, EXACT)),
        ([COUNTED, MORE], Figure(1_003, AT_LEAST)),
        ([GUESSED, MORE, GUESSED], Figure(1_180, ABOUT)),
    ],
)
def test_a_sum_is_as_exact_as_the_least_exact_part(figures: list[Figure], expected: Figure) -> None:
    assert total(iter(figures)) == expected
