"""The manifests: pods without rights, of settings and commands that exist, every queue taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from config.errors import UsageError
from config.load_settings import load_settings
from tests.support.program.deployment import (
    KUBERNETES,
    parse_command,
    read_compose,
    render_kind,
)
from workers.http.access import LOOPBACK_HOSTS
from workers.processes.http_server import parse_listen_address
from workers.processes.workloads import ALL_QUEUES, WORKLOADS, parse_workload

COMPOSED = read_compose("compose.yaml")["services"]
DEPLOYMENTS = [f"skillbus-{name}" for name in COMPOSED if "build" in COMPOSED[name]]
PASSWORDS = "/run/secrets/skillbus/"


def spec_of(name: str) -> Any:
    return render_kind("", "Deployment")[name]["spec"]


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = spec_of(name)["template"]["spec"]
    return spec


def settings_of_pods() -> dict[str, str]:
    [settings] = render_kind("", "ConfigMap").values()
    data: dict[str, str] = settings["data"]
    return data


def container(name: str) -> dict[str, Any]:
    [one] = pod(name)["containers"]
    assert isinstance(one, dict)
    return one


def test_the_kustomization_names_every_manifest() -> None:
    text = (KUBERNETES / "base" / "kustomization.yaml").read_text(encoding="utf-8")
    kustomization = yaml.safe_load(text)
    patches = {one["path"] for one in kustomization["patches"] if "path" in one}
    named = patches.union(kustomization["resources"])
    there = {path.name for path in (KUBERNETES / "base").glob("*.yaml")}
    assert named == there - {"kustomization.yaml"}


def test_there_are_the_same_processes_as_in_the_composed_deployment() -> None:
    assert set(render_kind("", "Deployment")) == set(DEPLOYMENTS)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_labels_select_the_pods_of_a_deployment_alone(name: str) -> None:
    labels = spec_of(name)["template"]["metadata"]["labels"]
    assert spec_of(name)["selector"]["matchLabels"] == labels
    assert labels["app.kubernetes.io/component"] == name.removeprefix("skillbus-")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_have_no_rights(name: str) -> None:
    assert pod(name)["automountServiceAccountToken"] is False
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    rights = container(name)["securityContext"]
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_are_bounded_and_watched(name: str) -> None:
    resources = container(name)["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]
    assert "startupProbe" in container(name)
    assert "readinessProbe" in container(name)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_what_is_mounted_is_defined_and_the_home_can_be_written(name: str) -> None:
    mounts = {mount["name"]: mount for mount in container(name)["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod(name)["volumes"]}
    assert mounts["home"]["mountPath"] == "/var/lib/skillbus"
    writable = {mount for mount in mounts if not mounts[mount].get("readOnly")}
    shares = [f"skillbus-{one}" for one in ("watcher", "gateway", "worker-ingest", "worker-link")]
    # Watcher and gateway read the files of whole skills, and purge them.
    reads = [f"skillbus-{one}" for one in ("watcher", "gateway", "worker-ingest")]
    fetches = [*reads, "skillbus-worker-fetch"]
    shared = {"uploads"} if name in shares else set()
    fetched = {"mirrors"} if name in fetches else set()
    tokens = {"tokens"} if name in ("skillbus-watcher", "skillbus-gateway") else set()
    assert writable == {"home", "tmp"} | shared | fetched | tokens
    assert ("skills" in mounts) == (name in reads)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_commands_exist(name: str) -> None:
    own = {"watcher": "serve", "gateway": "gateway", "consume": "consume"}
    command = parse_command(container(name)["args"])
    assert command["command"] == own.get(name.removeprefix("skillbus-"), "worker")


def test_no_variables_are_added_that_skillbus_would_refuse() -> None:
    assert all(pod(name)["enableServiceLinks"] is False for name in DEPLOYMENTS)


def test_workers_take_every_queue_once() -> None:
    taken = [
        parse_workload(parse_command(container(name)["args"])["queues"].split(",")).queues
        for name in DEPLOYMENTS
        if name.startswith("skillbus-worker-")
    ]
    assert sorted(queue for queues in taken for queue in queues) == sorted(ALL_QUEUES)
    assert {frozenset(queues) for queues in taken} == {frozenset(one.queues) for one in WORKLOADS}


def test_links_have_one_writer_even_while_it_is_replaced() -> None:
    spec = spec_of("skillbus-worker-link")
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


def test_the_gateway_listens_only_where_it_has_tokens() -> None:
    args = container("skillbus-gateway")["args"]
    assert not parse_command(args)["unprotected"]
    listen = parse_command(args)["listen"]
    with pytest.raises(UsageError, match="token"):
        parse_listen_address(listen)
    [service] = render_kind("", "Service").values()
    labels = spec_of("skillbus-gateway")["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    [port] = service["spec"]["ports"]
    assert listen.endswith(f":{port['port']}")
    assert container("skillbus-gateway")["ports"] == [
        {"name": port["targetPort"], "containerPort": port["port"]}
    ]
    [policy] = render_kind("", "NetworkPolicy").values()
    assert {"port": port["port"], "protocol": "TCP"} in policy["spec"]["ingress"][1]["ports"]
    hosts = json.loads(settings_of_pods()["SKILLBUS_GATEWAY__HOSTS"])
    assert hosts == [service["metadata"]["name"]]


def test_the_audit_log_is_on_a_volume_that_lasts() -> None:
    file = Path(settings_of_pods()["SKILLBUS_AUDIT__FILE"])
    for name in ("skillbus-watcher", "skillbus-gateway"):
        claims = {one["name"] for one in pod(name)["volumes"] if "persistentVolumeClaim" in one}
        kept = [one for one in container(name)["volumeMounts"] if one["name"] in claims]
        assert any(file.is_relative_to(one["mountPath"]) for one in kept), name


def test_probes_call_the_gateway_by_a_name_it_knows() -> None:
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        headers = container("skillbus-gateway")[probe]["httpGet"]["httpHeaders"]
        assert headers == [{"name": "Host", "value": "localhost"}]
    assert "localhost" in LOOPBACK_HOSTS


def test_settings_exist_and_passwords_come_from_the_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = settings_of_pods()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
        assert "PASSWORD" not in name or value.startswith(PASSWORDS)
        assert urlsplit(value).password is None
    settings = load_settings(tmp_path)
    assert settings.distributed
    for name in DEPLOYMENTS:
        [passwords] = [one for one in pod(name)["volumes"] if one["name"] == "passwords"]
        [mount] = [one for one in container(name)["volumeMounts"] if one["name"] == "passwords"]
        assert mount["mountPath"] + "/" == PASSWORDS
        assert passwords["secret"]["secretName"] == "skillbus-passwords"
    port = settings.workers.metrics_port
    assert settings.workers.metrics_host == "0.0.0.0"
    worker = container("skillbus-worker-query")
    assert worker["ports"] == [{"name": "metrics", "containerPort": port}]
    assert worker["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    [policy] = render_kind("", "NetworkPolicy").values()
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": port, "protocol": "TCP"}]


def test_the_same_settings_as_in_the_composed_deployment() -> None:
    assert set(settings_of_pods()) == set(COMPOSED["worker-query"]["environment"])
