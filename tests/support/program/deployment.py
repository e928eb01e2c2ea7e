"""Files of `deploy/` as data: composed services as the engine would see them, and manifests."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from workers.cli.program import cli

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = tuple(sorted(path.parent.name for path in KUBERNETES.glob("overlays/*/*.yaml")))

Join = Callable[[list[Any], list[Any]], list[Any]]
_LOADER = yaml.CSafeLoader
"""Several times faster than the loader in Python."""

_VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::-([^}]*))?\}")


def read_compose(*names: str) -> dict[str, Any]:
    """Compose files of `deploy/` on top of one another, variables at their defaults.

    Later files add to lists and mappings, as the Compose Specification merges them.
    """
    merged: dict[str, Any] = {}
    for name in names:
        text = (DEPLOY / name).read_text(encoding="utf-8")
        text = _VARIABLE.sub(lambda found: found[2] or "", text)
        merged = _merge(merged, yaml.load(text, _LOADER), _appended)
    return merged


def _merge(below: Any, above: Any, joined: Join) -> Any:
    """Mappings key by key, lists as `joined` says, and of anything else what stands above."""
    if isinstance(below, dict) and isinstance(above, dict):
        merged = copy.copy(below)
        for key, value in above.items():
            merged[key] = _merge(below[key], value, joined) if key in below else value
        return merged
    if isinstance(below, list) and isinstance(above, list):
        return joined(below, above)
    return above


def _appended(below: list[Any], above: list[Any]) -> list[Any]:
    return [*below, *(value for value in above if value not in below)]


def _patched(below: list[Any], above: list[Any]) -> list[Any]:
    """As in a strategic merge: things are one by name, or by where they are mounted."""
    by_name = {_name_of(value): value for value in below}
    for value in above:
        key = _name_of(value)
        by_name[key] = _merge(by_name[key], value, _patched) if key in by_name else value
    return list(by_name.values())


def read_manifests(name: str) -> list[dict[str, Any]]:
    """The documents of one file of `deploy/kubernetes/base`."""
    text = (KUBERNETES / "base" / name).read_text(encoding="utf-8")
    return [document for document in yaml.load_all(text, _LOADER) if document]


def read_deployments() -> dict[str, dict[str, Any]]:
    """Every Deployment by name, with the patches that its kustomization adds to it."""
    kustomization = read_manifests("kustomization.yaml")[0]
    found = {
        document["metadata"]["name"]: document
        for name in kustomization["resources"]
        for document in read_manifests(name)
        if document["kind"] == "Deployment"
    }
    for patch in kustomization["patches"]:
        key, _, value = patch["target"].get("labelSelector", "").partition("=")
        [change] = read_manifests(patch["path"])
        for name, document in found.items():
            if not key or document["metadata"]["labels"].get(key) == value:
                found[name] = _merge(document, {"spec": change["spec"]}, _patched)
    return found


@cache
def _kustomize(folder: Path) -> list[dict[str, Any]]:
    for program, *words in (("kubectl", "kustomize"), ("kustomize", "build")):
        if path := shutil.which(program):
            done = subprocess.run(
                [path, *words, str(folder)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            documents = yaml.load_all(done.stdout, _LOADER)
            return [document for document in documents if document]
    reason = "neither kubectl nor kustomize is installed"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def render_objects(overlay: str = "") -> list[dict[str, Any]]:
    """The objects that `kubectl apply --kustomize` would create, of an overlay or without one.

    Skips the test where no program renders them; with `CI=true` it fails.
    """
    folder = KUBERNETES / "overlays" / overlay if overlay else KUBERNETES
    return copy.deepcopy(_kustomize(folder))


def _name_of(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return str(value.get("mountPath") or value.get("name") or value)


def read_env_file(name: str) -> dict[str, str]:
    """Variables of a file of `deploy/kubernetes/base`."""
    lines = (KUBERNETES / "base" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def parse_command(arguments: list[str]) -> dict[str, Any]:
    """Parameters of a `skillbus` command as click reads them; raises click's own error."""
    root = cli.make_context("skillbus", list(arguments))
    name, command, rest = cli.resolve_command(root, [*root._protected_args, *root.args])
    assert command is not None
    return command.make_context(name, rest, parent=root).params | {"command": name}
