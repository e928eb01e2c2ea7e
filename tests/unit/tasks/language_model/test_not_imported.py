"""Without a configured model, nothing of its client is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]

COMMANDS = (
    "workers.cli.library.query",
    "workers.cli.library.sync",
    "workers.cli.operations.doctor",
    "workers.cli.operations.status",
    "workers.backend.embedded",
    "workers.backend.distributed",
    "workers.monitoring.local_checks",
    "workers.processes.serve",
    "workers.processes.worker",
)
CLIENT = ("endpoint", "openai_client", "dialogue", "structured_answers", "strict_schema")


def test_the_client_is_not_imported() -> None:
    program = (
        f"import {', '.join(COMMANDS)}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert "tasks.query.pipeline" in loaded
    assert "openai" not in loaded
    assert not loaded & {f"tasks.language_model.{name}" for name in CLIENT}
