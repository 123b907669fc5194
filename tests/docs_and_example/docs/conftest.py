"""Create one project for the examples in the documents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .project import Project, project_in, with_tutorial_files


@pytest.fixture(scope="session")
def example_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The tutorial's project after the last step of the tutorial, with empty tables."""
    with project_in(tmp_path_factory.mktemp("shop"), "docs") as project:
        with_tutorial_files(project)
        yield project
