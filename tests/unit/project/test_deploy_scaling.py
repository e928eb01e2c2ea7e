"""Rendered manifests: they fit their schemas, and KEDA scales each worker by what waits for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest

from config.load_settings import load_settings
from tasks.policies import POLICIES
from tests.support.program.deployment import OVERLAYS, parse_command, render_kind, render_objects
from workers.monitoring.metric_specs import DEPLOYMENT_METRICS
from workers.processes.heartbeat import _EXIT_GRACE_SECONDS
from workers.processes.workloads import parse_workload
from workers.queue.protocol import QUEUE

KUBERNETES_VERSIONS = ("1.30", kubernetes_validate.latest_version())
"""The oldest that has every field in use without a feature gate, and the newest known."""

TRIGGERS = {
    "redis": ({"address", "listName", "listLength"}, {"databaseIndex", "enableTLS"}),
    "redis-streams": ({"address", "stream", "streamLength"}, {"databaseIndex", "enableTLS"}),
    "rabbitmq": ({"host", "queueName", "mode", "value"}, {"protocol", "activationValue"}),
    "prometheus": ({"serverAddress", "query", "threshold"}, {"activationThreshold"}),
}
"""Metadata that a trigger has to have, and may have, by the documentation of KEDA 2.18; the schema
of a ScaledObject leaves it open."""

KEDA_OVERLAYS = [name for name in OVERLAYS if name.startswith("keda")]
SINGLE = {"skillbus-watcher", "skillbus-worker-fetch", "skillbus-worker-link"}


@pytest.fixture(autouse=True, scope="module")
def _schemas_are_read_once() -> Iterator[None]:
    """The library reads all definitions of a version, several megabytes, for each object."""
    read = kubernetes_validate.utils.schema_contents
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(read))
        yield


@cache
def check_schema(text: str) -> None:
    """Raise for an object, as JSON, that its API would refuse, unknown fields included.

    Overlays share most objects, which are checked once.
    """
    document = json.loads(text)
    if document["apiVersion"].startswith("keda.sh/"):
        from cloudcoil.models.keda import v1alpha1  # it takes a second

        read = getattr(v1alpha1, document["kind"]).model_validate(document)
        # The models leave out what they do not know.
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == document
        return
    for version in KUBERNETES_VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


def triggers(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every trigger, with the name of the Deployment that it scales."""
    for scaled in render_kind(overlay, "ScaledObject").values():
        for trigger in scaled["spec"]["triggers"]:
            yield scaled["spec"]["scaleTargetRef"]["name"], trigger


def waiting_at(trigger: dict[str, Any]) -> str:
    """The queue that a trigger of a broker reads."""
    metadata = trigger["metadata"]
    names = (metadata.get(field) for field in ("listName", "queueName", "stream"))
    return next((str(name) for name in names if name), "")


def consumed(deployment: dict[str, Any]) -> set[str]:
    """The queues that the process of a Deployment takes from."""
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    command = parse_command(container["args"])
    if command["command"] == "consume":
        return {QUEUE}
    return set(parse_workload(command["queues"].split(",")).queues)


@pytest.mark.parametrize("overlay", ["", *OVERLAYS])
def test_every_object_fits_its_schema(overlay: str) -> None:
    objects = render_objects(overlay)
    assert {"Deployment", "Service", "ConfigMap"} <= {one["kind"] for one in objects}
    for one in objects:
        check_schema(json.dumps(one))


def test_a_field_that_does_not_exist_is_refused() -> None:
    [deployment, *_] = render_kind("keda-redis", "Deployment").values()
    deployment["spec"]["template"]["spec"]["terminationGraceSeconds"] = 3
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGraceSeconds"):
        check_schema(json.dumps(deployment))
    [scaled, *_] = render_kind("keda-redis", "ScaledObject").values()
    scaled["spec"]["pollingSeconds"] = 3
    with pytest.raises(AssertionError):
        check_schema(json.dumps(scaled))


@pytest.mark.parametrize("overlay", KEDA_OVERLAYS)
def test_triggers_have_the_metadata_that_keda_reads(overlay: str) -> None:
    for _, trigger in triggers(overlay):
        required, optional = TRIGGERS[trigger["type"]]
        assert required <= set(trigger["metadata"]) <= required | optional


@pytest.mark.parametrize("overlay", KEDA_OVERLAYS)
def test_each_queue_scales_the_worker_that_takes_from_it(overlay: str) -> None:
    deployments = render_kind(overlay, "Deployment")
    scaled: dict[str, set[str]] = {}
    for name, trigger in triggers(overlay):
        if queue := waiting_at(trigger):
            scaled.setdefault(name, set()).add(queue)
    assert scaled == {
        name: consumed(one)
        for name, one in deployments.items()
        if name not in {*SINGLE, "skillbus-gateway"}
    }


@pytest.mark.parametrize("overlay", KEDA_OVERLAYS)
def test_bounds_fit_one_another_and_apply_leaves_replicas_alone(overlay: str) -> None:
    deployments = render_kind(overlay, "Deployment")
    bounds = {}
    for scaled in render_kind(overlay, "ScaledObject").values():
        spec = scaled["spec"]
        bounds[spec["scaleTargetRef"]["name"]] = spec
        assert spec["minReplicaCount"] < spec["maxReplicaCount"]
        assert max(1, spec["minReplicaCount"]) <= spec["fallback"]["replicas"]
        assert spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    assert not SINGLE & set(bounds)
    for name, one in deployments.items():
        assert ("replicas" in one["spec"]) == (name not in bounds)
    assert bounds["skillbus-worker-query"]["minReplicaCount"] >= 2


def test_the_last_worker_is_not_stopped_while_its_task_runs() -> None:
    for overlay in KEDA_OVERLAYS:
        deployments = render_kind(overlay, "Deployment")
        for name, scaled in render_kind(overlay, "ScaledObject").items():
            if scaled["spec"]["minReplicaCount"]:
                continue
            queues = consumed(deployments[name])
            longest = max(one.time_limit for one in POLICIES.values() if one.queue in queues)
            assert scaled["spec"]["cooldownPeriod"] > longest


@pytest.mark.parametrize("overlay", KEDA_OVERLAYS)
def test_keda_asks_the_broker_of_the_workers(
    overlay: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [settings] = render_kind(overlay, "ConfigMap").values()
    for name, value in settings["data"].items():
        monkeypatch.setenv(name, value)
    servers = load_settings(tmp_path).servers
    broker = urlsplit(servers.broker)
    passwords = {
        ref["parameter"]: (ref["name"], ref["key"])
        for ref in render_kind(overlay, "TriggerAuthentication")["skillbus-broker"]["spec"][
            "secretTargetRef"
        ]
    }
    assert servers.broker_password_file is not None
    assert passwords["password"] == ("skillbus-passwords", servers.broker_password_file.name)
    for _, trigger in triggers(overlay):
        if trigger["type"] == "prometheus":
            continue
        assert trigger["authenticationRef"] == {"name": "skillbus-broker"}
        metadata = trigger["metadata"]
        if broker.scheme == "redis":
            assert metadata["address"] == f"{broker.hostname}:{broker.port}"
            assert metadata["databaseIndex"] == broker.path.removeprefix("/")
        else:
            assert metadata["host"] == servers.broker.replace(f"{broker.username}@", "")
            user = render_kind(overlay, "Secret")["skillbus-broker-user"]["stringData"]
            assert user == {"username": broker.username}
            assert passwords["username"] == ("skillbus-broker-user", "username")


@pytest.mark.parametrize("overlay", [one for one in OVERLAYS if one.endswith("-prometheus")])
def test_prometheus_is_asked_for_metrics_that_exist(overlay: str) -> None:
    specs = {spec.name: spec for spec in DEPLOYMENT_METRICS}
    queries = [
        one["metadata"]["query"] for _, one in triggers(overlay) if one["type"] == "prometheus"
    ]
    assert len(queries) == 4
    for query in queries:
        found = re.fullmatch(r"max\((\w+)(?:\{(\w+)=(\".*\")\})?\)", query)
        assert found, query
        name, label, value = found.groups()
        assert specs[name].kind == "gauge"
        assert (label,) == specs[name].labels or (label is None and not specs[name].labels)
        assert value is None or json.loads(value) == "query"


@pytest.mark.parametrize("overlay", ["", *OVERLAYS])
def test_what_may_run_twice_is_stopped_one_by_one(overlay: str) -> None:
    budgets = {
        frozenset(one["spec"]["selector"]["matchLabels"].items()): one["spec"]["maxUnavailable"]
        for one in render_kind(overlay, "PodDisruptionBudget").values()
    }
    expected = {
        frozenset(one["spec"]["selector"]["matchLabels"].items()): 1
        for name, one in render_kind(overlay, "Deployment").items()
        if name not in SINGLE
    }
    assert budgets == expected


def test_pods_have_time_to_finish_what_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [settings] = render_kind("", "ConfigMap").values()
    for name, value in settings["data"].items():
        monkeypatch.setenv(name, value)
    seconds = load_settings(tmp_path).workers.stop_seconds + _EXIT_GRACE_SECONDS
    for name, one in render_kind("", "Deployment").items():
        pod = one["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > seconds
        if name == "skillbus-gateway":
            _, pause = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            assert pod["terminationGracePeriodSeconds"] > seconds + int(pause)
