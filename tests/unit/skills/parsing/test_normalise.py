from skills.parsing.front_matter_fields import (
    FrontmatterFields,
    parse_skill_names,
    parse_tool_names,
)
from skills.parsing.parse_skill import parse_skill
from skills.record import SiblingFile, SkillRecord


def record(front: str, body: str = "Some text about it.", *paths: str) -> SkillRecord:
    files = [SiblingFile(path, 10, "0" * 64) for path in paths]
    return parse_skill("tools/sheet", f"---\n{front}\n---\n{body}\n".encode(), files).record


NAMED = "name: sheet\ndescription: Reads .xlsx sheets. Use when the user asks for a table.\n"


def test_capability_and_use_come_from_the_description() -> None:
    found = record(NAMED)
    assert found.capability == "Reads .xlsx sheets."
    assert found.when_to_use == "Use when the user asks for a table."


def test_stated_use_comes_first() -> None:
    assert record(NAMED + "when_to_use: for sums").when_to_use == "for sums"


def test_use_from_a_section() -> None:
    found = record("name: a\ndescription: Sums.", "## When to use\n\n- for sums\n\n## Next\nx")
    assert found.when_to_use == "- for sums"


def test_inputs_and_outputs_from_fields() -> None:
    found = record(
        NAMED + "inputs:\n  - name: file\n    type: path\n  - sheet\noutputs:\n  table: csv"
    )
    assert (found.inputs, found.outputs) == (("file", "sheet"), ("table",))


def test_inputs_and_outputs_from_sections() -> None:
    body = (
        "## Inputs\n\n- **file**: the path\n- `sheet` (optional)\n\n## Outputs\n\n1. table - as CSV"
    )
    found = record(NAMED, body)
    assert (found.inputs, found.outputs) == (("file", "sheet"), ("table",))


def test_items_are_without_their_marks() -> None:
    body = "## Inputs\n\n1、文件：路径\n2.表 - 数据\n\n3. [x] sheet"
    assert record(NAMED, body).inputs == ("文件", "表", "sheet")


def test_tags_come_from_all_spellings() -> None:
    found = record(NAMED + "tags: [data, 'sheets']\ncategory: office\nmetadata:\n  keywords: a, b")
    assert found.domain_tags == ("data", "sheets", "a", "b", "office")


def test_tooling_from_code_and_description() -> None:
    shell = "# comment\npip install openpyxl\nFOO=1\ncd x\nduckdb \\\n  run"
    body = f"```bash\n{shell}\n```\n\n```python\nx\n```"
    assert record(NAMED, body).tooling == ("xlsx", "bash", "pip", "openpyxl", "duckdb", "python")


def test_lines_of_programs_in_shell_code_are_no_tools() -> None:
    inner = "\n".join(f"query{n} x" for n in range(12))
    shell = f"jq .\npython3 - <<'PY'\nimport os\n\n{inner}\nPY\nxsv count\n"
    quoted = 'node -e "\nimport os\nfrom x\n"\ncat <<EOF\nnever closed'
    body = f"```sh\n{shell}```\n\n```sh\n{quoted}\n```\n\n```sh\nduckdb x\n```"
    assert record(NAMED, body).tooling == ("xlsx", "sh", "jq", "python3", "xsv", "node", "duckdb")


def test_example_tasks() -> None:
    found = record(NAMED, '## Example prompts\n\n- "Sum the column"\n- Plot it\n')
    assert found.example_tasks == ("Sum the column", "Plot it")


def test_entrypoints_are_scripts() -> None:
    found = record(NAMED, "text", "scripts/b.py", "a.sh", "data.csv")
    assert found.entrypoints == ("a.sh", "scripts/b.py")
    assert [file.path for file in found.files] == ["a.sh", "data.csv", "scripts/b.py"]


def test_allowed_tools_as_text_and_list() -> None:
    assert parse_tool_names("Read, Write, Bash(git log:*)") == ("Read", "Write", "Bash(git log:*)")
    assert parse_tool_names("Read Write") == ("Read", "Write")
    assert parse_tool_names(["Read", "Bash(ls:*)"]) == ("Read", "Bash(ls:*)")
    assert record(NAMED + "allowed_tools: [Read]").allowed_tools == ("Read",)
    assert record(NAMED + "tools: Read").allowed_tools == ("Read",)


def test_depends_in_all_spellings() -> None:
    assert record(NAMED + "depends: [a, b]").depends == ("a", "b")
    assert record(NAMED + "requires: a, b >= 1.0").depends == ("a", "b")
    assert record(NAMED + "depends-on:\n  - name: a\n  - skill: b").depends == ("a", "b")
    assert record(NAMED + "metadata:\n  requires:\n    skills: [a]\n    bins: [git]").depends == (
        "a",
    )
    assert record(NAMED + "requires:\n  bins: [git]").depends == ()
    assert parse_skill_names("skill:a@2") == ("a",)


def test_conflicts() -> None:
    assert record(NAMED + "conflicts-with: [a]").conflicts == ("a",)


def test_licence_in_both_spellings() -> None:
    assert record(NAMED + "license: MIT").licence == "MIT"
    assert record(NAMED + "licence: MIT").licence == "MIT"
    assert record(NAMED + "metadata:\n  license: MIT").licence == "MIT"


def test_metadata_is_flat_and_bounded() -> None:
    many = "".join(f"k{n}: v\n" for n in range(200))
    found = record(NAMED + "metadata:\n  author: me\n  box:\n    deep: [1, 2]\n" + many).metadata
    assert found["author"] == "me"
    assert found["box.deep"] == "1, 2"
    assert len(found) == 64


def test_tokens_and_code_share() -> None:
    found = record(NAMED, "# Title\n\nfour words of text\n\n```\na b c\n```")
    assert found.tokens == 2 + 4 + 9
    assert found.code_share == 0.6


def test_language_of_the_prose_not_of_the_code() -> None:
    code = "```python\n" + "value = other\n" * 30 + "```"
    assert (
        record("name: a\ndescription: 读取表格", f"逐行读取文件并保存。\n\n{code}").language == "zh"
    )


def test_fields_look_below_metadata_last() -> None:
    fields = FrontmatterFields({"metadata": {"Tags": "b"}, "tags": "a"})
    assert fields.get_list("tags") == ("a",)
    assert FrontmatterFields({"metadata": {"Tags": "b"}}).get_list("tags") == ("b",)
    assert FrontmatterFields({"Allowed Tools": "x"}).get_text("allowed-tools") == "x"


def test_tags_in_a_list_of_mappings_are_their_values() -> None:
    assert record(NAMED + "tags:\n  - domain: office\n  - sums").domain_tags == ("office", "sums")


def test_tools_with_schemas_are_their_names() -> None:
    front = NAMED + "tools:\n  - name: fetch\n    description: gets it all\n  - Read"
    assert record(front).allowed_tools == ("fetch", "Read")


def test_a_heading_about_something_else_gives_no_inputs() -> None:
    assert record(NAMED, "## Input validation\n\n- check the length").inputs == ()


def test_sentences_are_no_names_of_skills() -> None:
    assert record(NAMED + "requires: an account with the service and its own key").depends == ()


def test_marks_are_no_tools() -> None:
    assert parse_tool_names("- Read | *") == ("Read", "*")
