"""llama.cpp's server for the small model: `python -m deploy.stack.llama.serve DATA PORT MODEL`.

DATA is the folder with the model, which is made on first use, and the API key (`password`).
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import xllamacpp

from deploy.stack.asking import HOST
from deploy.stack.llama.tiny_model import make_model

CALLS = 2
"""Maximum concurrent calls; further calls wait."""

CONTEXT = 32_768
"""Maximum tokens of prompt and answer together."""


def main() -> None:
    """Serve until a signal ends the process."""
    data, port, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    path = data / "model.gguf"
    if not path.exists():
        make_model(path, name)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.model_alias = {name}
    parameters.hostnames = [HOST]
    parameters.port = port
    parameters.api_keys = [(data / "password").read_text(encoding="utf-8").strip()]
    parameters.n_parallel = CALLS
    parameters.n_ctx = CALLS * CONTEXT
    parameters.ctx_shift = True  # allows endless answers, for tests of cancellation
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.offline = True
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    while server.listening_address:  # the server has threads of its own
        signal.pause()


if __name__ == "__main__":
    main()
