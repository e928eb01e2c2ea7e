"""The image: built from files that reach it, with what is locked, run by any user."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from config.load_settings import load_settings
from tests.support.program.deployment import DEPLOY, ROOT, parse_command

Instruction = tuple[str, str]


def read_stages() -> list[list[Instruction]]:
    """Instructions of each stage of the Dockerfile, continued lines joined, comments dropped."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    stages: list[list[Instruction]] = [[]]
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest.strip()))
    return stages


GLOBAL, BUILD, FINAL = read_stages()


def values(stage: list[Instruction], name: str) -> list[str]:
    return [rest for instruction, rest in stage if instruction == name]


def reaches_the_build(path: str) -> bool:
    """Whether `.dockerignore` lets a path of the repository into the build."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if not line or line.startswith("#"):
            continue
        parts = Path(path).parts
        names = parts if "**/" in line else ["/".join(parts[: n + 1]) for n in range(len(parts))]
        if any(fnmatch(name, pattern) for name in names):
            sent = line.startswith("!")
    return sent


def copied() -> list[str]:
    """Sources of every COPY from the repository."""
    lines = [shlex.split(rest) for rest in values(BUILD, "COPY") + values(FINAL, "COPY")]
    return [source for words in lines if not words[0].startswith("--from") for source in words[:-1]]


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    assert copied()
    for source in copied():
        assert (ROOT / source).exists(), source
        assert reaches_the_build(source), source


def test_every_room_reaches_the_build_and_nothing_else_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {
        name.removesuffix(".*")
        for name in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    assert rooms <= set(copied())
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if listed.returncode:
        pytest.skip("not a clone")
    sent = {path.split("/")[0] for path in listed.stdout.splitlines() if reaches_the_build(path)}
    assert sent == set(copied())
    assert not reaches_the_build("deploy/secrets/redis_password")
    assert not reaches_the_build("workers/__pycache__/worker.cpython-311.pyc")
    assert reaches_the_build("graph/neo4j/cypher/links.cypher")


def test_both_stages_have_one_base_with_the_python_of_the_lock() -> None:
    [argument] = values(GLOBAL, "ARG")
    name, _, image = argument.partition("=")
    assert {rest.split()[0] for rest in values(BUILD, "FROM") + values(FINAL, "FROM")} == {
        f"${{{name}}}"
    }
    found = re.fullmatch(r"python:(\d+)\.(\d+)-slim-\w+", image)
    assert found, "a tag that says which Python and which system"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={found[1]}.{found[2]}"


def test_packages_come_from_the_lock_without_a_compiler() -> None:
    runs = values(BUILD, "RUN")
    installs = [run for run in runs if " install " in run]
    assert any("--constraint requirements.lock" in run for run in installs)
    assert any("PIP_ONLY_BINARY=:all:" in line for line in values(BUILD, "ENV"))
    assert not [run for run in runs if "apt-get" in run]
    (run,) = (run for run in values(FINAL, "RUN") if "apt-get" in run)
    assert "install --yes --no-install-recommends ca-certificates git " in run
    assert "rm --recursive --force /var/lib/apt/lists/*" in run


def test_the_list_of_what_is_asked_for_is_that_of_the_project() -> None:
    [run] = [run for run in values(BUILD, "RUN") if "tomllib" in run]
    words = shlex.split(run.partition(">")[0])
    asked = subprocess.run(
        [sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["tracing"]]
    assert asked.stdout.splitlines() == wanted, asked.stderr


def test_a_light_image_is_made_from_its_lock() -> None:
    assert 'LIGHT=""' in values(BUILD, "ARG")
    wanted = "--no-deps --requirement requirements-light.lock"
    assert any(wanted in run for run in values(BUILD, "RUN"))


def test_torch_can_be_taken_from_an_index_that_is_named_when_building() -> None:
    assert 'TORCH_INDEX=""' in values(BUILD, "ARG")
    assert any('--index-url "$TORCH_INDEX"' in run for run in values(BUILD, "RUN"))
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert len(re.findall(r"^torch==", locked, re.MULTILINE)) == 1
    assert len(re.findall(r"^setuptools==", locked, re.MULTILINE)) == 1


def test_it_runs_as_a_user_without_rights_and_can_write_its_home_alone() -> None:
    assert values(FINAL, "USER") == ["1000:1000"]
    [home] = json.loads(values(FINAL, "VOLUME")[0])
    assert f"SKILLBUS_HOME={home}" in " ".join(values(FINAL, "ENV"))
    assert values(FINAL, "WORKDIR") == [home]
    assert f"--mode 0700 {home}" in " ".join(values(FINAL, "RUN"))


def test_it_is_the_program_and_its_commands_exist() -> None:
    assert json.loads(values(FINAL, "ENTRYPOINT")[0]) == ["skillbus"]
    assert parse_command(json.loads(values(FINAL, "CMD")[0]))["command"] == "serve"
    [health] = values(FINAL, "HEALTHCHECK")
    program, *arguments = json.loads(health.partition("CMD ")[2])
    assert program == "skillbus"
    parse_command(arguments)


def test_settings_of_the_image_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = [
        word for line in values(FINAL, "ENV") for word in line.split() if word.startswith("SKILL")
    ]
    assert variables
    for word in variables:
        monkeypatch.setenv(*word.split("=", 1))
    load_settings()


def test_the_label_is_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"VERSION={project['version']}" in values(FINAL, "ARG")
    [labels] = values(FINAL, "LABEL")
    assert project["description"] in labels
    assert f'licenses="{project["license"]}"' in labels
