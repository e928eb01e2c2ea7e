from hypothesis import given, settings
from hypothesis import strategies as st

from skills.parsing.fragments import MAX_CODE_LINES, MAX_JOINED_TOKENS, MIN_CHUNK_LINES
from skills.parsing.markdown import BlockType, parse_blocks
from skills.record import Passage, PassageKind
from tests.support.samples.fragments import split_lines


def passages(text: str) -> tuple[Passage, ...]:
    return split_lines(text.split("\n"), 1)[1]


def ranges(text: str) -> list[tuple[int, int]]:
    return [(passage.first_line, passage.last_line) for passage in passages(text)]


def test_sections_reach_from_heading_to_next_heading() -> None:
    text = "intro\n\n# A\n\n## B\n\ntext\n\n# C\nend"
    sections, _ = split_lines(text.split("\n"), 1)
    assert [
        (s.heading_path, s.level, s.heading_line, s.first_line, s.last_line) for s in sections
    ] == [
        ((), 0, 0, 1, 1),
        (("A",), 1, 3, 3, 3),
        (("A", "B"), 2, 5, 5, 7),
        (("C",), 1, 9, 9, 10),
    ]


def test_a_paragraph_ending_in_a_colon_joins_the_next_paragraph() -> None:
    assert ranges("Do this:\n\nOpen the file.\n\nThen close it.") == [(1, 3), (5, 5)]


def test_a_chinese_colon_counts() -> None:
    assert ranges("步骤如下：\n\n打开文件。") == [(1, 3)]


def test_a_bold_line_joins_the_next_paragraph() -> None:
    assert ranges("**Note**\n\nOpen the file.") == [(1, 3)]


def test_a_conditional_joins_the_next_paragraph() -> None:
    assert ranges("If the file is missing, make it.\n\nThen write.") == [(1, 3)]
    assert ranges("Look first. Otherwise ask.\n\nThen write.") == [(1, 3)]
    assert ranges("If it is there, go. Look first.\n\nThen write.") == [(1, 1), (3, 3)]


def test_a_connective_joins_what_precedes() -> None:
    assert ranges("Use the file.\n\ne.g. the first one.") == [(1, 3)]
    assert ranges("- item\n\nOr use another way.") == [(1, 3)]
    assert ranges("Use the file.\n\nOrder matters.") == [(1, 1), (3, 3)]


def test_nothing_joins_across_a_heading() -> None:
    assert ranges("Do this:\n\n# Next\n\nor that") == [(1, 1), (5, 5)]


def test_items_keep_their_lead_in() -> None:
    found = passages("Do this:\n\n- a\n- b\n  - inner\n\nEnd.\n\n- c")
    assert [passage.lead_in for passage in found] == [-1, 0, 0, -1, -1]
    assert [passage.kind for passage in found[:3]] == [
        PassageKind.PARAGRAPH,
        PassageKind.LIST_ITEM,
        PassageKind.LIST_ITEM,
    ]


def test_a_paragraph_introduces_what_is_directly_below_it() -> None:
    for block in ("- a", "```sh\nls\n```", "| a | b |\n|--|--|\n| 1 | 2 |"):
        assert [one.lead_in for one in passages(f"Bake at 240 °C.\n{block}")] == [-1, 0]
        assert [one.lead_in for one in passages(f"Bake at 240 °C.\n\n{block}")] == [-1, -1]


def test_code_and_tables_keep_their_lead_in() -> None:
    found = passages("Run:\n\n```sh\nls\n```\n\nWhere:\n\n| a | b |\n|--|--|\n| 1 | 2 |")
    assert [(passage.kind, passage.lead_in) for passage in found] == [
        (PassageKind.PARAGRAPH, -1),
        (PassageKind.CODE, 0),
        (PassageKind.PARAGRAPH, -1),
        (PassageKind.TABLE, 2),
    ]
    assert found[1].language == "sh"


def test_an_item_ending_in_a_colon_introduces_code_and_tables_after_it() -> None:
    def leads(text: str) -> list[int]:
        return [passage.lead_in for passage in passages(text)]

    assert leads("Steps:\n\n1. Run:\n```sh\nls\n```\n2. 写入：\n\n```\na\n```") == [-1, 0, 1, -1, 3]
    assert leads("- **Values:**\n| a | b |\n|--|--|\n| 1 | 2 |") == [-1, 0]
    assert leads("- A:\n- B\n\n```sh\nls\n```") == [-1, -1, -1]
    assert leads("- a\n  ```yaml\n  key:\n  ```\n\n```sh\nls\n```") == [-1, -1]
    assert ranges("- Note:\n\nOpen the file.") == [(1, 1), (3, 3)]


def test_long_code_is_split_at_blank_lines() -> None:
    inner = ["a = 1", "b = 2", "", "c = 3", "d = 4", "", "e = 5", "f = 6", "g = 7", "", "h", "i"]
    text = "\n".join(["```python", *inner, "```"])
    assert ranges(text) == [(1, 6), (8, 14)]
    assert [passage.language for passage in passages(text)] == ["python", "python"]


def test_code_up_to_the_limit_stays_whole() -> None:
    inner = ["a", ""] * ((MAX_CODE_LINES - 2) // 2)
    assert len(ranges("\n".join(["```", *inner, "```"]))) == 1


def test_long_code_without_blank_lines_stays_whole() -> None:
    assert len(ranges("\n".join(["```", *["a"] * 100, "```"]))) == 1


def test_a_break_belongs_to_what_precedes() -> None:
    assert ranges("text\n\n***\n\nmore") == [(1, 3), (5, 5)]


def test_a_very_long_lead_in_stays_a_passage_of_its_own() -> None:
    long = "word " * (MAX_JOINED_TOKENS + 1)
    assert ranges(f"{long}:\n\nshort") == [(1, 1), (3, 3)]


SNIPPETS = st.sampled_from(
    [
        "# Heading",
        "## Part ##",
        "Title\n=====",
        "Title\n-----",
        "A sentence.",
        "A list of things:",
        "When it fails, stop.",
        "or something else",
        "- a\n- b\n  - c\n\n  more",
        "1. one\n   ```sh\n   ls\n   ```\n2. two",
        "- a\n```\ncode\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "```python\n" + "x = 1\n\n" * 8 + "```",
        "```markdown\n```sh\nls\n```\n```",
        "~~~\n```\n~~~",
        "    indented\n\n    code",
        "> quote\n> more",
        "<!-- a\n\nb -->",
        "<div>\n\n</div>",
        "---",
        "***",
        "```",
        "<!--",
        "\t- tabbed",
        "第一步：打开文件",
        " ",
    ]
)
BODIES = st.lists(st.tuples(SNIPPETS, st.sampled_from(["\n", "\n\n", "\n\n\n"])), max_size=25)


@settings(deadline=None, max_examples=150)
@given(BODIES, st.integers(1, 4))
def test_passages_and_headings_hold_every_line_once_and_in_order(
    parts: list[tuple[str, str]], body_line: int
) -> None:
    lines = ["front"] * (body_line - 1) + "".join(a + b for a, b in parts).split("\n")
    sections, found = split_lines(lines, body_line)
    covered = [
        line
        for block in parse_blocks(lines, body_line)
        if block.type is BlockType.HEADING
        for line in range(block.first, block.last + 1)
    ]
    last = 0
    for index, passage in enumerate(found):
        section = sections[passage.section]
        assert passage.index == index
        assert passage.lead_in < index
        assert passage.first_line > last
        assert section.first_line <= passage.first_line <= passage.last_line <= section.last_line
        assert lines[passage.first_line - 1].strip()
        assert lines[passage.last_line - 1].strip()
        last = passage.last_line
        covered += range(passage.first_line, passage.last_line + 1)
    assert len(covered) == len(set(covered))
    filled = {n for n in range(body_line, len(lines) + 1) if lines[n - 1].strip()}
    assert filled <= set(covered)
    assert [section.index for section in sections] == list(range(len(sections)))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["a = 1", "", "    b"]), min_size=MAX_CODE_LINES, max_size=60))
def test_chunks_of_code_are_never_small(inner: list[str]) -> None:
    for first, last in ranges("\n".join(["```", *inner, "```"])):
        assert last - first + 1 >= MIN_CHUNK_LINES
