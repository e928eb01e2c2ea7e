import pytest

from skills.parsing.decoding import ParseError, decode_lines, find_conflict_markers


def codes(content: bytes) -> list[str]:
    return [warning.code for warning in decode_lines("a", content)[1]]


def test_plain_text_is_split_at_line_feeds_without_warnings() -> None:
    assert decode_lines("a", b"one\n\ntwo\n") == (("one", "", "two", ""), [])


def test_crlf_and_cr_cr_lf_keep_line_numbers() -> None:
    assert decode_lines("a", b"one\r\ntwo\r\n")[0] == ("one", "two", "")
    lines, warnings = decode_lines("a", b"one\n\xc3\xa4\r\r\ntwo")
    assert lines == ("one", "ä", "two")
    assert [(warning.code, warning.line) for warning in warnings] == [("cr_cr_lf", 2)]


def test_carriage_returns_alone_end_lines() -> None:
    assert decode_lines("a", b"one\rtwo\r")[0] == ("one", "two")
    assert codes(b"one\rtwo\r") == ["lone_cr"]


def test_a_byte_order_mark_is_dropped() -> None:
    assert decode_lines("a", b"\xef\xbb\xbfone")[0] == ("one",)
    assert codes(b"\xef\xbb\xbfone") == ["bom"]
    assert decode_lines("a", b"\xef\xbb\xbf" * 2 + b"---")[0] == ("---",)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_wide_encodings_are_read(encoding: str) -> None:
    lines, warnings = decode_lines("a", "name: one\ntwo words".encode(encoding))
    assert lines == ("name: one", "two words")
    assert [warning.code for warning in warnings] == ["wide_encoding"]


def test_gb18030_is_read_when_it_is_chinese() -> None:
    lines, warnings = decode_lines("a", "读取表格并写出摘要，然后保存文件".encode("gb18030"))
    assert lines == ("读取表格并写出摘要，然后保存文件",)
    assert warnings[0].code == "legacy_encoding"


def test_invalid_utf8_is_replaced_and_its_line_reported() -> None:
    lines, warnings = decode_lines("a", b"one\nt\xffo and more text\nthree")
    assert lines[1] == "t\ufffdo and more text"
    assert (warnings[0].code, warnings[0].line) == ("invalid_utf8", 2)


def test_nul_is_replaced_and_its_line_reported() -> None:
    lines, warnings = decode_lines("a", b"one\nt\0o\nthree")
    assert lines[1] == "t\ufffdo"
    assert (warnings[0].code, warnings[0].line) == ("nul", 2)


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)) * 20,
        b"\x89PNG\r\n\x1a\n" + b"\0\1\2" * 99,
        b"\0",
        b"\x7fELF\2\1\1\0",
        b"\xff\xd8\xff\xe0",
        b"\0\xff\0\xff\0",
        b"\xff\xff\xff\0\xff",
        b"\1\2\3 hello\xff",
    ],
)
def test_a_binary_file_is_refused(content: bytes) -> None:
    with pytest.raises(ParseError, match=r"^tools/a/SKILL.md:1: .*; ") as caught:
        decode_lines("tools/a", content)
    assert caught.value.line == 0
    with pytest.raises(ParseError, match=r"^SKILL.md:1: "):
        decode_lines("", content)  # the root of a source
    assert caught.value.reason


def test_conflict_marks_need_an_opening() -> None:
    assert find_conflict_markers(["Title", "=======", "text"]) == []
    assert find_conflict_markers(["<<<<<<< HEAD", "a", "=======", "b", ">>>>>>> other"]) == [
        1,
        3,
        5,
    ]
