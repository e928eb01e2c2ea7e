"""Language model of the stack: llama.cpp's server with a small model of random weights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from deploy.stack import asking, programs
from deploy.stack.asking import HOST
from deploy.stack.errors import UnavailableError
from deploy.stack.server import Server

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = (Path(sys.executable), ROOT / ".venv/bin/python")
"""Python interpreters that may have the packages; `make stack-up` runs with the system's Python."""


class LanguageModel(Server):
    """llama.cpp's server; the password is the API key."""

    name = "language_model"
    model = "skillbus-tiny"
    """Name of the model."""

    @property
    def url(self) -> str:
        """`http://host:port/v1`."""
        return f"http://{HOST}:{self.port}/v1"

    def settings(self) -> Mapping[str, str]:
        """Return the settings in the group `language_model` for this server."""
        key = str(self.place.data / "password")
        return {"base_url": self.url, "model": self.model, "api_key_file": key}

    def prepare(self) -> None:
        """Find the Python that has the packages, and create the API key."""
        find_python()
        _ = self.password  # creates the file that the program reads

    def command(self) -> Sequence[str]:
        """Return the command of the server, which runs in a Python process."""
        arguments = [str(self.place.data), str(self.port), self.model]
        return [find_python(), "-m", "deploy.stack.llama.serve", *arguments]

    def environment(self) -> Mapping[str, str]:
        """Return PYTHONPATH, so that Python finds this package."""
        path = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)}

    def ask(self, timeout: float) -> None:
        """Check that the model is loaded."""
        asking.ask_language_model(self.port, timeout)


@cache
def find_python() -> str:
    """Return a Python that has the packages of the server. Raises UnavailableError."""
    programs.check_platform()
    find = "import sys\nfrom importlib.util import find_spec\n"
    find += "sys.exit(not all(map(find_spec, ('gguf', 'numpy', 'tokenizers', 'xllamacpp'))))"
    for python in PYTHONS:
        if python.exists() and subprocess.run([python, "-c", find], check=False).returncode == 0:
            return str(python)
    raise UnavailableError("xllamacpp is not installed: it comes with make install")
