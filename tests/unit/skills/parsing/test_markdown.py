import pytest

from skills.parsing.markdown import (
    MarkdownBlock,
    _BlockParser,
    find_fenced_lines,
    is_thematic_break,
    parse_blocks,
    parse_heading,
)


def types_of(text: str) -> list[tuple[str, int, int]]:
    return [
        (block.type.value, block.first, block.last) for block in parse_blocks(text.split("\n"), 1)
    ]


def only(text: str) -> MarkdownBlock:
    (block,) = parse_blocks(text.split("\n"), 1)
    return block


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# One", (1, "One")),
        ("   ### Three ###", (3, "Three")),
        ("## C#", (2, "C#")),
        ("#", (1, "")),
        ("---# Glued", (1, "Glued")),
        ("##标题", (2, "标题")),
        ("#tag", None),
        ("#标签", None),
        ("####### seven", None),
        ("    # code", None),
        ("# " + "x" * 498, (1, "x" * 498)),
        ("# " + "x" * 499, None),
    ],
)
def test_atx_headings(line: str, expected: tuple[int, str] | None) -> None:
    assert parse_heading(line) == expected


@pytest.mark.parametrize(("line", "expected"), [("---", True), ("* * *", True), ("--", False)])
def test_thematic_breaks(line: str, expected: bool) -> None:
    assert is_thematic_break(line) is expected
    assert not is_thematic_break("--- a")


def test_setext_headings() -> None:
    assert types_of("Title\n=====\n\nPart\n----\ntext") == [
        ("heading", 1, 2),
        ("heading", 4, 5),
        ("paragraph", 6, 6),
    ]


def test_a_rule_under_a_sentence_is_no_heading() -> None:
    assert types_of("This is a sentence.\n---") == [("paragraph", 1, 1), ("break", 2, 2)]


def test_fences_of_both_marks_keep_the_other_inside() -> None:
    assert types_of("```py\n~~~\n# no heading\n```\n\n~~~\n```\n~~~") == [
        ("code", 1, 4),
        ("code", 6, 8),
    ]


def test_the_language_is_the_first_word_of_the_info_string() -> None:
    assert only("```Python title=x\na\n```").language == "python"
    assert only("``` {.bash}\na\n```").language == "bash"
    assert only("```\na\n```").language == ""


def test_a_longer_fence_holds_a_shorter_one() -> None:
    assert types_of("````\n```\na\n```\n````") == [("code", 1, 5)]


def test_a_fence_in_a_markdown_fence_is_nested() -> None:
    assert types_of("```markdown\n# T\n```bash\nls\n```\nend\n```\n\nafter") == [
        ("code", 1, 7),
        ("paragraph", 9, 9),
    ]


def test_stray_marks_behind_a_closing_fence() -> None:
    assert types_of("```json\na\n```**\n\nafter") == [("code", 1, 3), ("paragraph", 5, 5)]
    assert types_of("```\na\n```py\nb\n```") == [("code", 1, 5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- ```sh\n  ls\n  ```\n\nText", [(1, 3), (5, 5)]),
        ("- ```sh\n  ls\n\n  pwd\n  ```\n- b", [(1, 5), (6, 6)]),
        ("1. a\n   - ```sh\n     ls\n     ```\n2. b\n\nText", [(1, 4), (5, 5), (7, 7)]),
        ("- ```never closed\n- b\n\nText", [(1, 1), (2, 2), (4, 4)]),
    ],
)
def test_a_fence_after_the_mark_of_an_item_ends_with_its_closing_fence(
    text: str, expected: list[tuple[int, int]]
) -> None:
    assert [(block.first, block.last) for block in parse_blocks(text.split("\n"), 1)] == expected


def test_an_unclosed_fence_ends_before_the_next_chapter() -> None:
    blocks = parse_blocks(["```py", "a", "", "# comment", "", "## Next", "text"], 1)
    assert [(block.first, block.last, block.closed) for block in blocks[:2]] == [
        (1, 4, False),
        (6, 6, True),
    ]


def test_an_unclosed_fence_without_a_chapter_reaches_to_the_end() -> None:
    block = only("```py\na\n\nb\n\n")
    assert (block.last, block.closed) == (4, False)


def test_fences_that_are_never_closed_are_not_searched_for_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    closes = _BlockParser._closes

    def count(line: str, mark: str) -> bool:
        read.append(line)
        return closes(line, mark)

    monkeypatch.setattr(_BlockParser, "_closes", staticmethod(count))
    fences = [line for size in range(60, 3, -1) for line in ("~" * size, "", "## Next", "")]
    lines = [*fences, *["text", ""] * 1000, "~~~~~", "closed", "~~~~"]
    blocks = parse_blocks(lines, 1)
    assert [block.closed for block in blocks if block.fenced] == [False] * 55 + [True, False]
    assert len(read) < 5 * len(lines)


def test_lines_of_fenced_blocks() -> None:
    def fenced(text: str) -> str:
        return "".join("x" if inside else "." for inside in find_fenced_lines(text.split("\n"), 1))

    assert fenced("a\n```py\nb\n```\nc") == ".xxx."
    assert fenced("```pip install x``` first.\nb") == ".."
    assert fenced("```\na\n```py\nb\n```\nc") == "xxxxx."
    assert fenced("- ```sh\n  ls\n  ```\n- b\n  ~~~\n  c\n  ~~~\nd") == "xxx.xxx."
    assert fenced("```py\na\n\n## Next\nb") == "xx..."
    assert find_fenced_lines(["```", "a", "b"], 2) == [False] * 3


def test_indented_code() -> None:
    assert types_of("text\n\n    code\n\n    more\ntext") == [
        ("paragraph", 1, 1),
        ("code", 3, 5),
        ("paragraph", 6, 6),
    ]


def test_tables_end_at_a_blank_line() -> None:
    assert types_of("| a | b |\n|---|---|\n| 1 | 2 |\n\nafter") == [
        ("table", 1, 3),
        ("paragraph", 5, 5),
    ]


def test_a_table_interrupts_a_paragraph() -> None:
    assert types_of("Values\na | b\n--|--\n1 | 2") == [("paragraph", 1, 1), ("table", 2, 4)]


def test_an_item_holds_what_is_nested_in_it() -> None:
    text = "1. one\n   - inner\n\n   more\n   ```sh\n1. not an item\n   ```\n2. two\nlazy\n\nafter"
    assert types_of(text) == [("item", 1, 7), ("item", 8, 9), ("paragraph", 11, 11)]


def test_items_of_all_marks() -> None:
    text = "- a\n* b\n+ c\n• d\n1) e\n2. f\n3、第三\n- [ ] g"
    assert [type_ for type_, _, _ in types_of(text)] == ["item"] * 8


def test_a_block_quote_is_one_block() -> None:
    assert types_of("> a\n> b\ntext") == [("paragraph", 1, 2), ("paragraph", 3, 3)]


def test_a_comment_spans_blank_lines() -> None:
    assert types_of("<!-- a\n\n# b\n-->\ntext") == [("paragraph", 1, 4), ("paragraph", 5, 5)]


def test_a_comment_that_is_never_closed_is_a_paragraph() -> None:
    assert types_of("<!-- a\n\n# b") == [("paragraph", 1, 1), ("heading", 3, 3)]


def test_scanning_starts_at_the_first_line_given() -> None:
    assert parse_blocks(["# a", "", "b"], 2)[0].first == 3
