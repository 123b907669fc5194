"""The manifests for Kubernetes: they fit its schemas, and their commands and probes run as processes.

No test runs a cluster.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from django_mqueue import publish
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.stats.results import cap_for
from tests.support.processes import wait_until
from tests.support.shop.models import Step

from .files import DEPLOY, Container, manifests

FILES = sorted(path.name for path in (DEPLOY / "kubernetes").iterdir())
VERSIONS = ["1.28", "1.31", "1.34"]
PODS = [("workers.yaml", "Deployment"), ("archive.yaml", "CronJob")]


@pytest.mark.once
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FILES)
def test_the_manifests_fit_the_schemas(name: str, version: str) -> None:
    """The strict schemas refuse unknown fields."""
    for one in manifests(name).values():
        kubernetes_validate.validate(one, version, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**one, "spec": {**one["spec"], "unknown": 1}}, version, strict=True)


@pytest.mark.once
@pytest.mark.parametrize(("name", "kind"), PODS)
def test_a_pod_writes_only_to_its_volumes_and_has_no_rights(name: str, kind: str) -> None:
    container = Container(manifests(name)[kind], **{"metadata.name": "pod"})
    context = container.spec["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container.pod["securityContext"]["runAsNonRoot"]
    assert not container.pod["automountServiceAccountToken"]
    volumes = {volume["name"] for volume in container.pod["volumes"]}
    assert {mount["name"] for mount in container.spec["volumeMounts"]} == volumes


@pytest.mark.once
def test_the_objects_belong_together() -> None:
    workers, scaler = manifests("workers.yaml"), manifests("autoscaler.yaml")["HorizontalPodAutoscaler"]
    deployment, budget = workers["Deployment"], workers["PodDisruptionBudget"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert (
        deployment["spec"]["selector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"] == labels
    )
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaler["spec"]["minReplicas"] == deployment["spec"]["replicas"] >= 2
    (metric,) = scaler["spec"]["metrics"]
    wanted = int(metric["external"]["target"]["averageValue"]) * scaler["spec"]["maxReplicas"]
    assert wanted <= cap_for(subjects=10), "the metric counts no further, so there would be no more workers"
    assert manifests("archive.yaml")["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.django_db(transaction=True)
def test_the_container_works_and_its_probes_tell_that(tmp_path: Path) -> None:
    """The probes fail before the start, succeed while the worker's loop runs, and fail when it hangs."""
    container = Container(manifests("workers.yaml")["Deployment"], **{"metadata.name": "mqueue-worker-7d9f"})
    alive: dict[str, Any] = {"liveness_file": str(tmp_path / "alive")}
    mounts = {mount["mountPath"] for mount in container.spec["volumeMounts"]}
    assert str(Path(container.spec["args"][-1]).parent) in mounts, "the file would be on the read-only disk"
    assert not container.is_healthy("startupProbe", **alive)
    publish("orders", {"n": 1}, key="k")
    worker = container.start("orders:billing", **alive)
    try:
        wait_until(lambda: Step.objects.filter(what="end").exists(), "a message is handled")
        name = SubscriberHeartbeat.objects.filter(consumer_group="billing").values_list(
            "subscriber_name", flat=True
        )
        assert set(name) == {"mqueue-worker-7d9f"}
        assert container.is_healthy("startupProbe", **alive)
        assert container.is_healthy("livenessProbe", **alive)
        worker.send(signal.SIGSTOP)
        wait_until(lambda: worker.is_stopped, "it hangs")
        os.utime(alive["liveness_file"], (1, 1))
        assert not container.is_healthy("livenessProbe", **alive)
        worker.send(signal.SIGCONT)
        assert worker.stop() == 0
    finally:
        worker.close()
