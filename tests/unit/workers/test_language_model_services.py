"""How processes come by the language model and its answers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from config.settings import Settings
from tasks.language_model.protocol import ModelRequest
from tasks.services import Services
from tests.support.samples.tiny import TinyEncoder
from tests.support.servers.language_model import LanguageModelServer
from workers.backend.model_stores import open_answers
from workers.backend.status import read_status
from workers.backend.stores import open_services, send_nothing


class Choice(BaseModel):
    """An answer."""

    ids: list[str]


REQUEST = ModelRequest("select", 1, "Choose.", "which?", 100)


def open_at(settings: Settings, stack: ExitStack, *, writable: bool) -> Services:
    return open_services(settings, stack, send_nothing, writable=writable, encoder=TinyEncoder())


def ask(services: Services) -> int:
    assert services.language_model is not None
    return services.language_model.get().complete(REQUEST, Choice).calls


def test_without_a_model_there_is_none_and_no_file_of_answers(tmp_path: Path) -> None:
    for language_model in ({}, {"base_url": "http://127.0.0.1:1/v1", "model": "m", "stages": ()}):
        settings = Settings(home=tmp_path, language_model=language_model)
        with ExitStack() as stack:
            services = open_at(settings, stack, writable=True)
            assert (services.language_model, services.answers) == (None, None)
        assert "language_model" not in read_status(settings)
    assert not (tmp_path / "answers.db").exists()


def test_a_writer_and_a_reader_of_a_home_share_answers(tmp_path: Path) -> None:
    with LanguageModelServer(lambda asked: {"ids": ["a"]}) as server, ExitStack() as stack:
        settings = Settings(home=tmp_path, language_model=server.settings())
        writer = open_at(settings, stack, writable=True)
        reader = open_at(settings, stack, writable=False)
        assert (ask(writer), ask(reader), ask(writer)) == (1, 0, 0)
        other = settings.model_copy(update={"language_model": server.settings(model="m2")})
        server.models = (*server.models, "m2")
        assert ask(open_at(other, stack, writable=False)) == 1
        assert server.requests == 2
        used: dict[str, Any] = read_status(settings)["language_model"]["usage"]["select"]
        assert (used["calls"], used["stored"]) == (2, 2)


def test_the_file_of_answers_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, language_model={"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    )
    with ExitStack() as stack:
        assert open_answers(settings, stack) is not None
        assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("answers.db*")} == {0o600}
