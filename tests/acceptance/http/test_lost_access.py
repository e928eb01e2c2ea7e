"""A token that is revoked while a response is open: nothing more is sent to its caller."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.hidden_skills import Walked
from tests.support.servers.language_model import MODEL, LanguageModelServer
from tests.support.servers.open_streams import check_streams_end_with_their_token


def test_streams_end_with_their_token(fork_server: ForkServer, tmp_path: Path) -> None:
    """Every query waits for a language model, until the token is revoked."""
    released = threading.Event()

    def answer(_: object) -> str:
        assert released.wait(120)
        return "{}"

    with LanguageModelServer(answer) as model:
        program = Skillbus(
            fork_server,
            tmp_path / "home",
            SKILLBUS_LANGUAGE_MODEL__BASE_URL=model.url,
            SKILLBUS_LANGUAGE_MODEL__MODEL=MODEL,
            SKILLBUS_LANGUAGE_MODEL__QUERY_MILLISECONDS="120000",
        )
        program("sync", str(write_topics(tmp_path / "crafts")))
        secret = program("tokens", "add", "root", "--scope", "admin").out.strip()
        url = f"http://127.0.0.1:{free_port()}"
        headers = {"Authorization": f"Bearer {secret}"}
        with (
            program.serving("--listen", url.removeprefix("http://")),
            httpx.Client(base_url=url, headers=headers, timeout=120) as admin,
        ):
            wait_for(lambda: admin.get("/healthz").is_success)
            walked = Walked(url, {"root": secret}, admin, program, tmp_path)
            try:
                check_streams_end_with_their_token(walked, released.set)
            finally:
                released.set()
