"""The list of guards fits the code and the tests."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import ROOT

from .mutations import MUTATIONS
from .mutations.mutation import Mutation
from .taking_out import copy_of_the_project, needs_spark, taken_out

pytestmark = [pytest.mark.always, pytest.mark.once]


def test_each_guard_has_a_name_of_its_own() -> None:
    assert len({mutation.guard for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.guard)
def test_what_takes_a_guard_out_fits_the_code(mutation: Mutation) -> None:
    """Each text to be replaced is in its file exactly once, and the edited file is valid Python."""
    assert mutation.tests
    for edit in mutation.edits:
        text = (ROOT / "django_mqueue" / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.file} holds {text.count(edit.old)} times: {edit.old}"
        assert edit.new != edit.old
        compile(text.replace(edit.old, edit.new), edit.file, "exec")


def test_a_guard_that_is_not_there_can_not_be_taken_out(tmp_path: Path) -> None:
    """The tests of the list depend on this: a mutation that changes nothing is an error."""
    place, mutation = copy_of_the_project(tmp_path), MUTATIONS[0]
    with (
        taken_out(mutation, place),
        pytest.raises(AssertionError, match="0 times"),
        taken_out(mutation, place),
    ):
        pass
    for edit in mutation.edits:
        assert (place / "django_mqueue" / edit.file).read_bytes() == (
            ROOT / "django_mqueue" / edit.file
        ).read_bytes()


def test_every_test_that_is_named_exists() -> None:
    named = sorted(
        {
            f"tests/{test}"
            for mutation in MUTATIONS
            for test in mutation.tests
            if find_spec("pyspark") or not needs_spark(test)
        }
    )
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    assert set(named) <= set(found.stdout.splitlines())
