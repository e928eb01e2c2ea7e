"""The composed deployment: valid, closed to the outside, of settings and commands that exist."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from config.load_settings import load_settings
from tasks.policies import QUERY_QUEUE
from tests.support.program.deployment import DEPLOY, parse_command, read_compose
from tests.support.servers.servers import NAMES
from workers.processes.workloads import ALL_QUEUES, parse_workload

MODEL_FILE = "compose.language-model.yaml"
FILES = ["compose.yaml", "compose.rabbitmq.yaml", MODEL_FILE, "compose.test.yaml"]
DEPLOYMENTS = [
    ("compose.yaml",),
    ("compose.yaml", "compose.rabbitmq.yaml"),
    ("compose.yaml", MODEL_FILE),
]
IMAGES = set(NAMES) - {"language_model"}
"""Servers with an image; the language model for tests runs from packages."""

ASKING = {"worker-query", "worker-refine"}
"""Workers that ask a language model."""
OURS = {name for name, one in read_compose("compose.yaml")["services"].items() if "build" in one}
WORKERS = OURS - {"watcher", "gateway", "consume"}
SECRETS = "/run/secrets/"
SHARED = ("uploads:/srv/uploads", "mirrors:/srv/mirrors", "tokens:/srv/tokens")


@pytest.fixture(params=DEPLOYMENTS, ids=["redis", "rabbitmq", "model"])
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_compose(*request.param)


def services(deployment: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = deployment["services"]
    return found


def secrets_of(service: dict[str, Any]) -> dict[str, str]:
    """Where each secret lies in the container."""
    secrets = {}
    for one in service.get("secrets", []):
        name, target = (one, one) if isinstance(one, str) else (one["source"], one["target"])
        secrets[name] = target if target.startswith("/") else SECRETS + target
    return secrets


def words_of(service: dict[str, Any]) -> str:
    """Everything a service says, to look for paths in."""
    return json.dumps(service).replace("\\n", " ")


@pytest.mark.parametrize("name", FILES)
def test_a_file_follows_the_compose_specification(name: str) -> None:
    schema = resources.files("check_jsonschema").joinpath(
        "builtin_schemas/vendor/compose-spec.json"
    )
    file = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(file)


def test_what_a_service_refers_to_is_defined(deployment: dict[str, Any]) -> None:
    for name, service in services(deployment).items():
        assert set(secrets_of(service)) <= set(deployment["secrets"]), name
        assert set(service["networks"]) <= set(deployment["networks"]), name
        assert set(service.get("depends_on", {})) <= set(services(deployment)), name
        for volume in service.get("volumes", []):
            if isinstance(volume, str):
                assert volume.split(":")[0] in deployment["volumes"], name
        used = set(re.findall(r"/run/secrets/[\w.]+", words_of(service)))
        assert used <= set(secrets_of(service).values()), name


def test_every_secret_and_volume_is_used(deployment: dict[str, Any]) -> None:
    secrets = {
        secret for service in services(deployment).values() for secret in secrets_of(service)
    }
    assert secrets == set(deployment["secrets"])
    mounted = {
        volume.split(":")[0]
        for service in services(deployment).values()
        for volume in service.get("volumes", [])
        if isinstance(volume, str)
    }
    assert mounted == set(deployment["volumes"])


def test_every_service_is_watched_and_bounded(deployment: dict[str, Any]) -> None:
    for name, service in services(deployment).items():
        assert service["healthcheck"]["test"], name
        assert service["mem_limit"], name
        assert service["stop_grace_period"], name
        assert service["restart"] == "unless-stopped", name
        assert service["logging"]["options"]["max-size"], name


def test_no_service_can_do_more_than_its_own_user_may(deployment: dict[str, Any]) -> None:
    for name, service in services(deployment).items():
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"].partition(":")[0] not in ("", "0", "root"), name
        assert not service.get("privileged"), name


def test_only_the_gateway_is_published_and_only_on_loopback(deployment: dict[str, Any]) -> None:
    published = {name: one["ports"] for name, one in services(deployment).items() if "ports" in one}
    assert published == {"gateway": ["127.0.0.1:8765:8765"]}
    assert deployment["networks"]["servers"] == {"internal": True}
    outside = {
        name for name, one in services(deployment).items() if set(one["networks"]) != {"servers"}
    }
    asking = ASKING if "language_model_key" in deployment["secrets"] else set()
    assert outside == {"gateway", "worker-fetch", *asking}
    listen = parse_command(services(deployment)["gateway"]["command"])["listen"]
    assert listen.endswith(":8765")


def test_the_root_file_system_of_skillbus_is_read_only(deployment: dict[str, Any]) -> None:
    for name in OURS:
        service = services(deployment)[name]
        assert service["read_only"] is True
        assert [entry.split(":")[0] for entry in service["tmpfs"]] == ["/tmp", "/var/lib/skillbus"]
        for volume in service.get("volumes", []):
            assert volume in SHARED or volume["read_only"] is True


def test_no_password_stands_in_a_file(deployment: dict[str, Any]) -> None:
    for name, service in services(deployment).items():
        for variable, value in service.get("environment", {}).items():
            assert "PASSWORD" not in variable or value.startswith(SECRETS), f"{name}: {variable}"
            assert urlsplit(str(value)).password is None, f"{name}: {variable}"


def test_settings_exist_and_name_every_server(
    deployment: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in OURS:
        service = services(deployment)[name]
        environment = service["environment"]
        with monkeypatch.context() as patched:
            for variable, value in environment.items():
                patched.setenv(variable, value)
            settings = load_settings(tmp_path)
        assert settings.distributed, name
        assert len(settings.model_fields_set - {"home"}) == len(
            {variable.split("__")[0] for variable in environment}
        )
        for address in (
            settings.servers.broker,
            settings.servers.redis,
            settings.servers.elasticsearch,
            settings.servers.neo4j,
        ):
            assert urlsplit(address).hostname in service["depends_on"], name


def test_every_process_has_the_same_servers(deployment: dict[str, Any]) -> None:
    named = {
        name: {
            variable: value
            for variable, value in services(deployment)[name]["environment"].items()
            if variable.startswith("SKILLBUS_SERVERS__")
        }
        for name in OURS
    }
    assert all(one == named["watcher"] for one in named.values()), named


def test_only_workers_that_ask_a_model_have_its_key() -> None:
    composed = services(read_compose("compose.yaml", MODEL_FILE))
    having = {name for name, one in composed.items() if "language_model_key" in secrets_of(one)}
    assert having == ASKING
    for name in OURS:
        environment = composed[name]["environment"]
        assert json.loads(environment["SKILLBUS_LANGUAGE_MODEL__STAGES"]) == ["select"]
        named = "SKILLBUS_LANGUAGE_MODEL__API_KEY_FILE" in environment
        assert named == (name in ASKING), name


def test_redis_keeps_what_it_was_given(deployment: dict[str, Any]) -> None:
    command = services(deployment)["redis"]["command"]
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"


def test_workers_take_every_queue_once_and_queries_alone(deployment: dict[str, Any]) -> None:
    taken = [
        parse_workload(parse_command(service["command"])["queues"].split(",")).queues
        for name, service in services(deployment).items()
        if name.startswith("worker-")
    ]
    assert sorted(queue for queues in taken for queue in queues) == sorted(ALL_QUEUES)
    assert (QUERY_QUEUE,) in taken


def test_the_guide_says_how_much_memory_it_may_take() -> None:
    limits = [one["mem_limit"] for one in services(read_compose("compose.yaml")).values()]
    guide = (DEPLOY.parent / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    total = sum(int(limit.removesuffix("g")) for limit in limits)
    assert f"memory limits in the compose file add up to {total} GB" in guide


def test_skills_are_mounted_where_they_are_read(deployment: dict[str, Any]) -> None:
    mounted = {
        name
        for name, service in services(deployment).items()
        if any(isinstance(one, dict) for one in service.get("volumes", []))
    }
    # The gateway serves the files of whole skills.
    assert mounted == {"watcher", "gateway", "worker-ingest"}


def test_volumes_are_mounted_where_they_are_used(deployment: dict[str, Any]) -> None:
    used = {
        "uploads": ({"watcher", "gateway", "worker-ingest", "worker-link"}, ["UPLOADS__FOLDER"]),
        # Watcher and gateway read whether a repository has a skill that is to be purged.
        "mirrors": ({"watcher", "gateway", "worker-fetch", "worker-ingest"}, ["GIT__MIRRORS"]),
        "tokens": ({"watcher", "gateway"}, ["GATEWAY__TOKENS_FILE", "AUDIT__FILE"]),
    }
    for volume, (names, settings) in used.items():
        mounted = {
            name
            for name, service in services(deployment).items()
            if f"{volume}:/srv/{volume}" in service.get("volumes", [])
        }
        assert mounted == names
        for name in names:
            environment = services(deployment)[name]["environment"]
            for setting in settings:
                assert environment[f"SKILLBUS_{setting}"].startswith(f"/srv/{volume}")


def test_submissions_are_taken_from_the_broker_of_the_tasks(deployment: dict[str, Any]) -> None:
    service = services(deployment)["consume"]
    assert parse_command(service["command"])["command"] == "consume"
    assert "SKILLBUS_SUBMISSIONS__BROKER" not in service["environment"]
    assert set(service["networks"]) == {"servers"}


def test_the_health_of_a_worker_is_asked_where_it_tells(deployment: dict[str, Any]) -> None:
    for name in {"consume", *WORKERS}:
        service = services(deployment)[name]
        assert service["environment"]["SKILLBUS_WORKERS__METRICS_HOST"] == "0.0.0.0"
        port = service["environment"]["SKILLBUS_WORKERS__METRICS_PORT"]
        assert f"127.0.0.1:{port}/readyz" in service["healthcheck"]["test"][-1]


def test_servers_are_those_of_the_local_stack() -> None:
    versions = tomllib.loads((DEPLOY / "stack" / "versions.toml").read_text(encoding="utf-8"))
    whole = services(read_compose("compose.yaml", "compose.rabbitmq.yaml"))
    for tested in services(read_compose("compose.test.yaml")).items():
        assert tested[1]["image"] == whole[tested[0]]["image"]
    assert whole["elasticsearch"]["image"] == f"elasticsearch:{versions['elasticsearch']}"
    assert whole["neo4j"]["image"] == f"neo4j:{versions['neo4j']}-community"
    for name in IMAGES:
        repository, _, tag = whole[name]["image"].partition(":")
        assert repository == name
        assert re.match(r"\d+\.\d+", tag)


def test_servers_for_tests_are_named_to_the_tests_and_stay_on_loopback() -> None:
    text = (DEPLOY / "compose.test.yaml").read_text(encoding="utf-8")
    exported = dict(re.findall(r"export SKILLBUS_TEST_(\w+)_URL=(\S+)", text))
    composed = services(read_compose("compose.test.yaml"))
    assert {name.lower() for name in exported} == set(composed) == IMAGES
    for name, service in composed.items():
        [port] = service["ports"]
        address = urlsplit(exported[name.upper()])
        assert port.startswith(f"{address.hostname}:{address.port}:")
        assert address.hostname == "127.0.0.1"
        assert service["healthcheck"]["test"]
        assert service["mem_limit"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A copy of the script that makes passwords, run once."""
    script = tmp_path / "secrets.sh"
    script.write_bytes((DEPLOY / "secrets.sh").read_bytes())
    subprocess.run(["sh", script], check=True, timeout=120)
    return tmp_path


def test_passwords_are_made_for_every_secret(made: Path, deployment: dict[str, Any]) -> None:
    for name, secret in deployment["secrets"].items():
        assert (made / secret["file"]).stat().st_size > 0, name
    folder = made / "secrets"
    redis = (folder / "redis_password").read_text(encoding="utf-8")
    neo4j = (folder / "neo4j_password").read_text(encoding="utf-8")
    assert re.fullmatch(r"[0-9a-f]{48}", redis)
    assert redis != neo4j
    assert (folder / "redis.conf").read_text(encoding="utf-8") == f"requirepass {redis}\n"
    assert (folder / "neo4j_auth").read_text(encoding="utf-8") == f"neo4j/{neo4j}\n"
    assert (folder / "rabbitmq.conf").read_text(encoding="utf-8").splitlines() == [
        "default_vhost = skillbus",
        "default_user = skillbus",
        f"default_pass = {(folder / 'rabbitmq_password').read_text(encoding='utf-8')}",
    ]


def test_passwords_are_their_owners_and_stay_when_made_again(made: Path) -> None:
    folder = made / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    # The owner writes passwords of its own into them.
    assert modes.pop("elasticsearch_password") == 0o600
    assert set(modes.values()) == {0o644}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    subprocess.run(["sh", made / "secrets.sh"], check=True, timeout=120)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_password_of_ones_own_is_taken_over(made: Path) -> None:
    path = made / "secrets" / "redis_password"
    path.write_text("mine\n", encoding="utf-8")
    subprocess.run(["sh", made / "secrets.sh"], check=True, timeout=120)
    assert (made / "secrets" / "redis.conf").read_text(encoding="utf-8") == "requirepass mine\n"


def test_a_password_that_a_server_would_read_otherwise_is_refused(made: Path) -> None:
    before = (made / "secrets" / "redis.conf").read_bytes()
    for password in ("my pass", "my#pass", 'my"pass', "pass/word", "über"):
        (made / "secrets" / "redis_password").write_text(password, encoding="utf-8")
        run = subprocess.run(
            ["sh", made / "secrets.sh"], capture_output=True, text=True, check=False, timeout=120
        )
        assert run.returncode == 1, password
        assert "redis_password: use letters, digits" in run.stderr
        assert (made / "secrets" / "redis.conf").read_bytes() == before


def test_the_user_is_added_to_settings_that_are_there_already(tmp_path: Path) -> None:
    script = tmp_path / "secrets.sh"
    script.write_bytes((DEPLOY / "secrets.sh").read_bytes())
    (tmp_path / ".env").write_text("SKILLS_DIR=/srv/skills", encoding="utf-8")
    for _ in range(2):
        subprocess.run(["sh", script], check=True, timeout=120)
    lines = (tmp_path / ".env").read_text(encoding="utf-8").split()
    assert [line.partition("=")[0] for line in lines] == [
        "SKILLS_DIR",
        "CONTAINER_UID",
        "CONTAINER_GID",
    ]


def test_variables_of_the_files_are_listed_at_the_top() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    top = text.partition("\nname:")[0]
    for variable in set(re.findall(r"\$\{([A-Z_]+)", text)):
        assert variable in top
        # skillbus itself would refuse a variable of the shell that begins like its own
        assert not variable.startswith("SKILLBUS_")
