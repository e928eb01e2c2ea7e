"""The file `answers.db` of a home, which holds the embedded stores of the language model."""

from __future__ import annotations

from tasks.shared_sqlite_file import SharedFile

ANSWERS_FILE = SharedFile(
    "answers of the language model",
    "move it away to start anew: the model is asked again for what was in it",
    version=1,
)
