"""Recorded answers of a capable model: prompts to be answered, and answers that are replayed.

Prompts are written as JSON Lines (`key`, `stage`, `instructions`, `data`, `schema`); answers are
read from JSON Lines (`key`, `answer`), and hold no text of a skill. The key is the hash of what is
sent, so a prompt that has changed finds no answer.

    answers = RecordedAnswers.read(path)
    with LanguageModelServer(answers) as server:
        ...
    assert not answers.unknown
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from tasks.language_model.protocol import ModelRequest


class AskedPrompt(Protocol):
    """A request, as a server got it."""

    @property
    def instructions(self) -> str:
        """The system message."""
        ...

    @property
    def data(self) -> str:
        """The user message."""
        ...


class Prompt(NamedTuple):
    """A request of skillbus and the type of its answer."""

    request: ModelRequest
    answer_type: type[BaseModel]


def get_prompt_key(instructions: str, data: str) -> str:
    """The key of a prompt: the hash of its two messages, whatever model is asked."""
    text = json.dumps([instructions, data], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def write_prompts(path: Path, prompts: Iterable[Prompt]) -> int:
    """Write prompts to be answered, each once; returns how many."""
    rows: dict[str, dict[str, Any]] = {}
    for request, answer_type in prompts:
        key = get_prompt_key(request.instructions, request.data)
        rows[key] = {
            "key": key,
            "stage": request.stage,
            "instructions": request.instructions,
            "data": request.data,
            "schema": answer_type.model_json_schema(),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows.values():
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return len(rows)


class RecordedAnswers:
    """The script of a loopback server that gives recorded answers.

    unknown: the prompts without one, which got an answer that is not valid. used: the keys of the
    answers that were given.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.unknown: list[AskedPrompt] = []
        self.used: set[str] = set()

    @classmethod
    def read(cls, *paths: Path) -> RecordedAnswers:
        """Read the answers of some files; raises ValueError for a line that is not one."""
        answers: dict[str, Any] = {}
        for path in paths:
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict) or not {"key", "answer"} <= row.keys():
                    raise ValueError(f"{path}:{number}: expected an object with key and answer")
                answers[row["key"]] = row["answer"]
        return cls(answers)

    def __call__(self, asked: AskedPrompt) -> str:
        """The text of the answer."""
        key = get_prompt_key(asked.instructions, asked.data)
        if key not in self.answers:
            self.unknown.append(asked)
            return "no answer is recorded for this prompt"
        self.used.add(key)
        answer = self.answers[key]
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
