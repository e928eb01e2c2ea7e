"""Without settings for them, commands import neither the client of a language model nor any
prompt, and `serve` not the SDK of OpenTelemetry; nor does opening the services."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

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

PARTS_WITHOUT_A_MODEL = {
    f"tasks.language_model.{name}"
    for name in ("answer_store", "frame", "protocol", "skill_pairs", "skill_pairs.protocol")
}
TRACING = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto")

PROGRAM = f"""
import json, sys
from contextlib import ExitStack
from pathlib import Path
from config.settings import Settings
from tests.support.samples.tiny import TinyEncoder
from workers.backend.stores import open_services
from workers.tracing.start import start_tracing
settings = Settings(home=Path(sys.argv[1]))
start_tracing(settings.tracing)()
with ExitStack() as stack:
    open_services(settings, stack, print, writable=True, encoder=TinyEncoder())
services = list(sys.modules)
import workers.processes.serve
serve = list(sys.modules)
import {", ".join(COMMANDS)}
print(json.dumps([services, serve, list(sys.modules)]))
"""


def test_client_prompts_and_tracing_are_not_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    services, serve, everything = map(set, json.loads(done.stdout))
    parts = {name for name in services if name.startswith("tasks.language_model.")}
    assert parts <= PARTS_WITHOUT_A_MODEL
    # The client of Redis imports it, too.
    assert not [name for name in serve if name.startswith(TRACING)]
    assert "tasks.query.pipeline" in everything
    assert "openai" not in everything
    assert not everything.intersection(CLIENT + PROMPTS)
    assert all(importlib.util.find_spec(name) for name in CLIENT + PROMPTS)
