"""Which skills a SKILL.md is found to name."""

from __future__ import annotations

import time

import pytest

from graph.links.mentions import MAX_MENTIONS, SEQUENCE_STRIDE, find_mentions
from graph.skill_names import lookup_keys, normalise_name
from skills.parsing.parse_skill import parse_skill


def mentions(
    body: str, front: str = "name: own-skill\ndescription: Does things."
) -> set[tuple[str, str]]:
    parsed = parse_skill("own-skill", f"---\n{front}\n---\n\n# Own\n\n{body}\n".encode())
    return {(m.kind, normalise_name(m.name)) for m in find_mentions(parsed)}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Data  Tool", ("data-tool",)),
        ("data_tool", ("data-tool",)),
        ("Plugin:Data-Tool", ("plugin:data-tool", "data-tool")),
        ("数据 工具", ("数据-工具",)),
        ("ＤＡＴＡ", ("data",)),
        ("ΠΡΩΪ\u0301", ("πρωΐ",)),
        ("πρωΐ", ("πρωΐ",)),
        (" - ", ()),
    ],
)
def test_names_have_one_normal_form(name: str, keys: tuple[str, ...]) -> None:
    assert lookup_keys(name) == keys


def test_declared_names_with_their_line() -> None:
    front = "name: own\ndescription: x\ndepends:\n  - ledger-reader\nconflicts: [old-ledger]"
    parsed = parse_skill("own", f"---\n{front}\n---\nText.\n".encode())
    found = {(m.kind, m.name, m.line) for m in find_mentions(parsed)}
    assert {("depends", "ledger-reader", 5), ("conflicts", "old-ledger", 6)} <= found


def test_front_matter_lists() -> None:
    front = "name: own\ndescription: x\nrelated_skills:\n  - tax\n  - audit-log\ntags: [nope-tag]"
    found = mentions("Text.", front)
    assert {("related", "tax"), ("related", "audit-log")} <= found
    assert ("related", "nope-tag") not in found


@pytest.mark.parametrize(
    "body",
    [
        "## Related skills\n\n- ledger: reads the books",
        "## Related Skills\n\n- **ledger** - reads the books",
        "## See also\n\n- [ledger](../ledger/SKILL.md)",
        "## 相关技能\n\n- ledger：读取账本",
        "## Works with\n\n1. `ledger`",
        "**Related skills:** `ledger`, `tax`",
    ],
)
def test_names_in_a_related_section(body: str) -> None:
    assert ("related", "ledger") in mentions(body)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("## Prerequisites\n\n- `ledger-reader` for the input", True),
        ("## 前置条件\n\n- 先运行 `ledger-reader`", True),
        ("## Prerequisites\n\n- numpy", False),
    ],
)
def test_names_in_a_prerequisite_section(body: str, found: bool) -> None:
    assert any(kind == "related" for kind, _ in mentions(body)) is found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Then use the ledger skill.", "ledger"),
        ("Then invoke the `ledger` skill to finish.", "ledger"),
        ("Run `ledger-reader` first.", "ledger-reader"),
        ("Use books:ledger-reader skill.", "books:ledger-reader"),
        ('Apply "ledger-reader" to it.', "ledger-reader"),
        ("使用「ledger」技能读取。", "ledger"),
        ("Use skill `ledger` here.", "ledger"),
    ],
)
def test_quoted_names(text: str, name: str) -> None:
    assert ("quoted", name) in mentions(text)


@pytest.mark.parametrize(
    "text",
    [
        "Read the ledger and the tax table.",
        "Run `docker` and `git`.",
        "This skill is the best skill. Use your skills.",
        "For payroll use `payroll-runner` instead.",
        "Not for payroll: `payroll-runner` does that.",
        "Use `payroll-runner` rather.",
        "For all others, use the payroll-runner skill.",
        "This is not `payroll-runner`.",
        "Rows that are wide (many columns → `payroll-runner`).",
        "Read `payroll_runner` from the environment.",
        "Call it with the `my-payroll` skill.",
        "The `PROMOTED` skill verdict.",
        "- Run:\n\n  ```bash\n  make --skill `payroll-runner`\n  ```",
        "```bash\npip install ledger-reader\n```",
        "Use `own-skill` again.",
    ],
)
def test_what_merely_occurs_is_not_mentioned(text: str) -> None:
    assert not mentions(text)


@pytest.mark.parametrize("start", ["```pip install x``` first.", "- ```sh\n  ls\n  ```"])
def test_a_name_after_code_is_mentioned(start: str) -> None:
    assert mentions(f"{start}\n\nFirst use the `ledger` skill.") == {("quoted", "ledger")}


def test_of_two_ways_the_first_is_meant() -> None:
    found = mentions("Draw it with the `chart-drawer` skill or `plot-maker`.")
    assert found == {("quoted", "chart-drawer")}


def test_front_matter_about_something_else_names_no_skill() -> None:
    assert not mentions("Text.", "name: own\ndescription: x\nsubdomain: ledger-work")


def test_front_matter_lists_of_records() -> None:
    listed = "related_skills:\n  - slug: tax-table\n    relation: before-it\n  - slug: audit-log"
    found = mentions("Text.", f"name: own\ndescription: x\n{listed}\nkind: plain-text")
    assert found == {("related", "tax-table"), ("related", "audit-log")}


@pytest.mark.parametrize(
    "text",
    [
        "See [the reader](../ledger/SKILL.md).",
        "```bash\npython ../ledger/scripts/read.py\n```",
        "Read `../../books/ledger/references/format.md`.",
        "Look at skills/ledger/SKILL.md.",
    ],
)
def test_files_of_another_skill(text: str) -> None:
    assert ("file", "ledger") in mentions(text)


def order(body: str) -> list[tuple[str, int, int]]:
    parsed = parse_skill("own", f"---\nname: own\ndescription: x\n---\n{body}\n".encode())
    return [
        (m.name, *divmod(m.position, SEQUENCE_STRIDE))
        for m in find_mentions(parsed)
        if m.kind == "order"
    ]


def test_sequences_along_arrows() -> None:
    assert order("The skills: `read` → **sum-up** -> `report`\n\nThen a-b => c-d.") == [
        ("read", 1, 1),
        ("sum-up", 1, 2),
        ("report", 1, 3),
        ("a-b", 2, 1),
        ("c-d", 2, 2),
    ]


def test_sequences_of_numbered_steps() -> None:
    body = "1. Use `read-it` now.\n2. Think.\n3. Use the report skill.\n\nText\n\n1. Use `a-b`.\n"
    assert order(body) == [("read-it", 1, 1), ("report", 1, 2)]


@pytest.mark.parametrize(
    "items",
    [
        ("If the books are open, use `read-it`.", "For a summary use `sum-up`."),
        ("**Reading a book**: use `read-it`", "**Writing a report**: use `write-it`"),
        ("Need a total → `sum-up`", "Need a page → `write-it`"),
        ("Sums: `sum-up`, `add-it`", "Pages: `write-it`, `print-it`"),
        ("The input comes from `read-it`.", "Never run `write-it` alone."),
        ("Read it all. Then see `read-it`.", "Check the page (per `write-it`)."),
        ("Use `read-it`.", "If that fails, use `sum-up`.", "Use `write-it`."),
    ],
)
def test_choices_and_remarks_are_no_sequence(items: tuple[str, ...]) -> None:
    assert order("\n".join(f"{n}. {item}" for n, item in enumerate(items, 1))) == []


@pytest.mark.parametrize(
    "items",
    [
        ("Use `read-it`", "Run the `write-it` skill"),
        ("`read-it` - takes it in", "Think", "`write-it`: puts it out"),
        ("**Read** - Use `read-it` now", "**Write** the page via `write-it`"),
        ("使用 `read-it` 读取", "运行 `write-it`"),
    ],
)
def test_steps_that_call_for_a_skill_are_a_sequence(items: tuple[str, ...]) -> None:
    found = order("\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)))
    assert [name for name, _, _ in found] == ["read-it", "write-it"]


@pytest.mark.parametrize(
    "text",
    [
        "`INIT` → `CHAT` → `DONE`",
        "Update `ledger-1-2` → `ledger-1-3`.",
        "- ledger-reader → books-ledger-reader",
    ],
)
def test_states_and_new_names_are_no_sequence(text: str) -> None:
    assert order(text) == []


def test_an_arrow_between_words_is_no_sequence() -> None:
    assert order("Input → output, a -> b, x => y") == []


def test_mentions_are_bounded_and_quick() -> None:
    body = "## Related skills\n\n" + "\n".join(f"- `skill-{n}`: text" for n in range(5000))
    parsed = parse_skill("own", f"---\nname: own\ndescription: x\n---\n{body}\n".encode())
    start = time.thread_time()
    found = find_mentions(parsed)
    assert len(found) == MAX_MENTIONS
    assert time.thread_time() - start < 30


@pytest.mark.parametrize(
    "hostile", ["`" * 200_000, "a-" * 100_000, "**" * 100_000, "../" * 70_000, "[" * 200_000]
)
def test_hostile_lines_take_linear_time(hostile: str) -> None:
    """Seconds at most of processor time, where quadratic time would take minutes."""
    text = f"---\nname: own\ndescription: x\n---\n{hostile}\n\n## Related\n\n- {hostile}\n"
    parsed = parse_skill("own", text.encode())
    start = time.thread_time()
    find_mentions(parsed)
    assert time.thread_time() - start < 30
