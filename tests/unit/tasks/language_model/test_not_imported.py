"""Without settings for them, commands import neither the client of a language model nor any
prompt, and `serve` not the SDK of OpenTelemetry."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]

COMMANDS = (
    "tasks.ingest.pipeline",
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
CLIENT = tuple(
    f"tasks.language_model.{name}"
    for name in ("endpoint", "openai_client", "dialogue", "structured_answers", "strict_schema")
)
PROMPTS = (
    "tasks.query.language_model.rewrite",
    "tasks.query.language_model.select_prompt",
    "tasks.refine.completion.prompt_stage",
    "tasks.refine.completion.record_stage",
    "tasks.refine.judging.judge_prompt",
    "tasks.refine.linking.prompt",
    "tasks.refine.roles.role_prompt",
    "tasks.refine.stages",
)


TRACING = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto")


def test_client_prompts_and_tracing_are_not_imported() -> None:
    program = (
        "import json, sys, workers.processes.serve; serve = list(sys.modules)\n"
        f"import {', '.join(COMMANDS)}\n"
        "print(json.dumps([serve, list(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    serve, everything = json.loads(done.stdout)
    # The client of Redis imports it, too.
    assert not [name for name in serve if name.startswith(TRACING)]
    loaded = set(everything)
    assert "tasks.query.pipeline" in loaded
    assert "openai" not in loaded
    assert not loaded.intersection(CLIENT + PROMPTS)
    assert all(importlib.util.find_spec(name) for name in CLIENT + PROMPTS)
