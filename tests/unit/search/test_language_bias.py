from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from typing_extensions import override

from search.models.language_bias import load_translations, remove_language
from search.protocol import Vector
from search.scoring.cosine_scale import PROBES
from search.text.function_words import count_function_words
from search.text.task_language import detect_east_asian_language, detect_task_language
from tests.support.samples.tiny import TinyEncoder

SPANISH = "Necesito revisar el puerto para los barcos"


class SpanishBias(TinyEncoder):
    """An encoder whose first dimension says how Spanish a text is."""

    model = "biased"
    encoded = 0

    @override
    def encode_queries(self, texts: Sequence[str]) -> Vector:
        self.encoded += len(texts)
        vectors = super().encode_queries(texts)
        vectors[:, 0] = [10.0 * (detect_task_language(text) == "es") for text in texts]
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_the_vector_of_a_task_loses_the_direction_of_its_language() -> None:
    encoder = SpanishBias()
    [vector] = encoder.encode_queries([SPANISH])
    assert vector[0] > 0.9
    found = remove_language(vector, SPANISH, encoder)
    assert abs(found[0]) < 0.5
    assert np.linalg.norm(found) == pytest.approx(1.0)
    encoder.encoded = 0
    assert remove_language(vector, SPANISH, encoder) == pytest.approx(found)
    assert encoder.encoded == 0  # the direction is measured once


@pytest.mark.parametrize("text", ["Inspect the harbour for the boats", "检查港口的船只", "12 / 7"])
def test_tasks_in_english_and_chinese_keep_their_vector(text: str) -> None:
    [vector] = TinyEncoder().encode_queries([text])
    assert remove_language(vector, text, TinyEncoder()) is vector


def test_every_probe_is_translated_and_recognised() -> None:
    for language, prompts in load_translations().items():
        assert len(set(prompts)) == len(PROBES)
        found = {detect_task_language(" ".join(prompts[i : i + 4])) for i in range(0, 16, 4)}
        assert found == {language}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", ""),
        ("please fix the bug in my code", ""),
        ("die cast parts in the car", ""),
        ("¿Cuál es la mejor manera de probar el API?", "es"),
        ("como faço para testar a API do meu site?", "pt"),
        ("Come posso provare questa API senza un server?", "it"),
        ("comment tester cette API sans serveur ?", "fr"),
        ("wie teste ich die API ohne Server?", "de"),
        ("bagaimana cara menguji API ini untuk saya", "id"),
        ("как проверить это API без сервера", "ru"),
        ("मुझे इस API की जाँच कैसे करनी है", "hi"),
        ("サーバーなしでこのAPIをテストするには", "ja"),
        ("서버 없이 이 API를 어떻게 테스트하나요", "ko"),
        ("没有服务器怎样测试这个 API", "zh"),
        ("translate the word これ to English for me please", ""),
    ],
)
def test_the_language_of_a_task(text: str, language: str) -> None:
    assert detect_task_language(text) == language


def test_a_kana_in_a_chinese_text_makes_no_japanese() -> None:
    assert detect_east_asian_language("我需要使用鲜の每日的订单文件") == "zh"
    assert not count_function_words("fix it")
