"""A wheel of this tree, and a virtual environment with nothing but it and its dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def build_wheel(copy: Path, made: Path) -> Path:
    """Build a wheel from a copy of the tree, without any network, and return its file."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "shared")
    shutil.copytree(ROOT, copy, ignore=ignored, dirs_exist_ok=True)
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made, copy)
    [path] = made.glob("*.whl")
    return path


def install_wheel(wheel: Path, folder: Path) -> Path:
    """Install a wheel with pip into a new virtual environment, and return its `skillbus`.

    Its dependencies are those of this Python; skillbus itself is not, whose editable installation
    is not followed from there.
    """
    venv.create(folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    _run(*pip, "install", "--no-deps", "--no-index", "--quiet", wheel)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "skillbus"


def _run(*command: object) -> None:
    run = subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, timeout=200, cwd="/"
    )
    assert run.returncode == 0, run.stdout + run.stderr
