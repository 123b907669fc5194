"""The proof, for half a minute. ``python3 tests/prove.py`` runs it for any length of time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.db import connections

from tests.own_server import OwnServer
from tests.proof.run import Options, Run
from tests.support.sampling import number_of

SHORT = Options(
    seed=1, seconds=30, every=1.0, rate=150, lease=6.0, threads=4, workers=2, hands=1, publishers=2, slack=8.0,
    takeover=60.0, drain=300.0, least=100,
)  # fmt: skip


@pytest.mark.always
@pytest.mark.timeout(900)
def test_half_a_minute_of_faults_breaks_no_promise(
    own_server: OwnServer, tmp_path: Path, seed_of_run: str | None
) -> None:
    """Publishers, workers and faults on a private server, which is also killed. The history has no breach.

    A run with ``--sample SEED`` or ``--seed SEED`` derives its faults from the seed. On a busy machine, a takeover may
    last longer than this run, so only its end shows that each partition is taken over.
    """
    parameters = connections[own_server.alias].get_connection_params()
    run = Run(
        replace(SHORT, seed=1 if seed_of_run is None else number_of(seed_of_run)),
        tmp_path,
        own_server.url,
        parameters,
        own_server.server,
        None,
        print,
    )
    result = run()
    assert not result.breaches, "\n\n".join(map(str, result.breaches))
    assert not result.complaints
    assert result.summary.committed >= SHORT.least
    assert result.summary.faults["ready"] >= 1
    assert sum(result.summary.deliveries.values()) > result.summary.committed
    assert result.summary.scheduled
    assert result.summary.lots
    assert result.summary.batches
