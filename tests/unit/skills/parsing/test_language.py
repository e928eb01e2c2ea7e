import pytest

from skills.parsing.language_detection import detect_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Read the table and write a summary of each column.", "en"),
        ("读取表格，并为每一列写出摘要。", "zh"),
        ("使用 pandas 读取 CSV 文件，然后用 matplotlib 绘制每一列的分布图。", "zh"),
        ("Read the table 读取表格 and write the summary of each column 写出摘要", "mixed"),
        ("Прочитай таблицу и напиши отчёт по каждому столбцу.", "other"),
        ("表を読み込んで、それぞれの列のまとめをかいてください。", "other"),
        ("", "en"),
        ("1234 !!", "en"),
        ("A long English text about a menu that has one dish named 汤 among its many soups.", "en"),
    ],
)
def test_language_of_a_text(text: str, language: str) -> None:
    assert detect_language(text) == language
