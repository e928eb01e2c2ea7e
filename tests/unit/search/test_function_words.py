from __future__ import annotations

import unicodedata

import pytest

from search.text.function_words import drop_function_words
from search.text.query_understanding import understand
from search.text.tokens import tokenize


def kept(text: str) -> list[str]:
    return drop_function_words(tokenize(text), text)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Quanti grammi di riso devo cuocere per la cena?", "grammi riso cuocere cena"),
        ("¿Qué tengo que revisar en el puerto?", "revisar puerto"),
        (unicodedata.normalize("NFD", "perché più sabbia?"), "sabbia"),
        ("Wie lange ist der Hafen nicht für Boote offen?", "lange Hafen Boote offen"),
        ("मुझे नाव की मरम्मत कैसे करना है", "नाव मरम्मत"),
        ("как починить лодку для рыбалки", "починить лодку рыбалки"),
    ],
)
def test_function_words_of_other_languages_are_dropped(text: str, content: str) -> None:
    assert kept(text) == tokenize(content)


def test_english_keeps_words_that_are_function_words_elsewhere() -> None:
    text = "Die cast parts come from the man in the plus size car"
    assert kept(text) == tokenize(text)


def test_a_task_has_no_function_words_as_terms() -> None:
    assert understand("¿Qué tengo que revisar en el puerto?").terms == tuple(
        tokenize("revisar puerto")
    )


def test_a_task_of_function_words_alone_keeps_them() -> None:
    assert understand("come si fa questo").terms == tuple(tokenize("come si fa questo"))
