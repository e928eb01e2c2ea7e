"""Files of `deploy/` as data: composed services and rendered manifests, as the engines see them."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
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
        merged = _merge(merged, yaml.load(text, _LOADER))
    return merged


def _merge(below: Any, above: Any) -> Any:
    """Mappings key by key, lists one after the other, and of anything else what stands above."""
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {
            key: _merge(below[key], value) if key in below else value
            for key, value in above.items()
        }
    if isinstance(below, list) and isinstance(above, list):
        return [*below, *(value for value in above if value not in below)]
    return above


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


def render_kind(overlay: str, kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind by name."""
    return {one["metadata"]["name"]: one for one in render_objects(overlay) if one["kind"] == kind}


def parse_command(arguments: list[str]) -> dict[str, Any]:
    """Parameters of a `skillbus` command as click reads them; raises click's own error."""
    root = cli.make_context("skillbus", list(arguments))
    name, command, rest = cli.resolve_command(root, [*root._protected_args, *root.args])
    assert command is not None
    return command.make_context(name, rest, parent=root).params | {"command": name}
