"""A process that asks numbered questions, and a server that counts which answers it delivered.

The process asks the questions 0, 1, … in a random order and keeps the answers in a home. It ends
once all are answered, and may be killed and started again.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from config.errors import TransientError
from config.language_model_settings import LanguageModelSettings
from tasks.coordination.local import LocalCoordinator
from tasks.language_model.metered import MeteredLanguageModel
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.protocol import ModelRequest
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from tests.support.program.fresh_processes import FRESH
from tests.support.servers.language_model import MODEL, Asked, LanguageModelServer, Reply, stalling

_LAST_LOOK_SECONDS = 0.002
"""Time in which the server sees that a client has hung up, before it sends."""


class Number(BaseModel):
    """The answer: the number of the question."""

    model_config = ConfigDict(extra="forbid")

    number: int


def question(number: int) -> ModelRequest:
    """The request of a question."""
    return ModelRequest("record", 1, "Repeat the number.", str(number), max_tokens=20)


class NumberServer(LanguageModelServer):
    """Answers each question after some seconds; counts which answers were delivered.

    deliveries: how often each answer was sent whole, by number.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(self._answer)
        self.deliveries: Counter[int] = Counter()
        self._seconds = seconds
        self._sending = 0
        self._paused = False
        self._own = threading.local()
        self._turn = threading.Condition()

    def _answer(self, asked: Asked) -> Reply:
        time.sleep(self._seconds - _LAST_LOOK_SECONDS)
        number = int(asked.data)
        with self._turn:
            self._turn.wait_for(lambda: not self._paused)
            self._sending += 1
        self._own.number = number
        return stalling(_LAST_LOOK_SECONDS, {"number": number})

    @property
    def number(self) -> int:
        """The question that the calling thread of this server answers."""
        return int(self._own.number)

    def end(self, *, whole: bool, left: bool) -> None:
        """Count the end of a request."""
        super().end(whole=whole, left=left)
        with self._turn:
            self.deliveries[self.number] += whole
            self._sending -= 1
            self._turn.notify_all()

    @contextmanager
    def nothing_sent(self) -> Iterator[None]:
        """While the body runs, no answer is sent; those that are ready wait."""
        with self._turn:
            self._paused = True
            assert self._turn.wait_for(lambda: not self._sending, 60)
        try:
            yield
        finally:
            with self._turn:
                self._paused = False
                self._turn.notify_all()


def start(home: Path, server: LanguageModelServer, questions: int, threads: int) -> BaseProcess:
    """Start the process."""
    process = FRESH.Process(target=_ask_all, args=(home, server.url, questions, threads))
    process.start()
    return process


def stored_numbers(home: Path, questions: int) -> set[int]:
    """The questions whose right answer is stored."""
    answers = SqliteAnswerStore(home / "answers.db")
    try:
        found = {n: answers.get_answer(question(n).key(MODEL, Number)) for n in range(questions)}
    finally:
        answers.close()
    return {
        number
        for number, answer in found.items()
        if answer is not None and Number.model_validate_json(answer.text).number == number
    }


def _ask_all(home: Path, url: str, questions: int, threads: int) -> None:
    settings = LanguageModelSettings(base_url=url, model=MODEL, concurrency=threads)
    answers = SqliteAnswerStore(home / "answers.db")
    client = OpenAILanguageModel(settings)
    model = MeteredLanguageModel(client, answers, settings, LocalCoordinator())
    numbers = random.sample(range(questions), questions)
    with ThreadPoolExecutor(threads) as pool:
        given = list(pool.map(lambda number: _ask(model, number), numbers))
    assert given == numbers
    model.close()
    answers.close()


def _ask(model: MeteredLanguageModel, number: int) -> int:
    """The answer to a question."""
    while True:
        try:
            return model.complete(question(number), Number).answer.number
        except TransientError as error:
            print(f"asked again: {error}", file=sys.stderr)
            time.sleep(0.1)
