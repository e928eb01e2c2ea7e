"""A training that is killed and resumed, as the acceptance tests of `skillbus train` check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.program.program import Skillbus, wait_for

_SECONDS = 120
"""Time until the first checkpoint, on a busy machine."""


def kill_and_resume(skillbus: Skillbus, out: Path, *command: str) -> dict[str, Any]:
    """Kill a training after its first checkpoint, resume it, and return its model card.

    Other options are refused when it is resumed, and the same command after it has ended. out: the
    folder of the model, which the command names too.
    """
    process = skillbus.start(*command)
    wait_for((out / "checkpoint.safetensors").exists, _SECONDS)
    process.kill()
    assert not (out / "skillbus.json").exists()
    assert "a different seed" in skillbus(*command, "--seed", "5", code=2).err
    done = skillbus(*command, "--json")
    assert "resuming the training" in done.err
    card: dict[str, Any] = done.data
    assert json.loads((out / "skillbus.json").read_text(encoding="utf-8")) == card
    assert "--fresh" in skillbus(*command, code=2).err
    return card
