"""A pytest plugin for the copy. It records which package was tested, and how each failed test failed."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from .taking_out import AROUND

_failures: list[dict[str, str]] = []
_passed: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        error = AROUND if report.when != "call" else call.excinfo.typename
        _failures.append({"test": item.nodeid, "error": error, "text": call.excinfo.exconly()[:500]})
    elif report.when == "call":
        _passed.append(item.nodeid)
    return report


def pytest_sessionfinish(session: Any) -> None:
    import django_mqueue

    told = {"package": django_mqueue.__file__, "passed": _passed, "failures": _failures}
    Path(os.environ["GUARDS_REPORT"]).write_text(json.dumps(told), encoding="utf-8")
