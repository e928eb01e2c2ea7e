from hypothesis import given, settings
from hypothesis import strategies as st

from skills.parsing.front_matter import Frontmatter, parse_frontmatter
from skills.parsing.lenient_yaml import YamlMapping, parse_lenient_yaml
from skills.parsing.strict_yaml import YamlLimits

LIMITS = YamlLimits(max_characters=10_000, max_depth=5, max_aliases=3, max_values=100)


def read(text: str) -> Frontmatter:
    return parse_frontmatter(text.split("\n"), LIMITS)


def codes(text: str) -> list[str]:
    return [warning.code for warning in read(text).warnings]


def loose(text: str) -> YamlMapping:
    return parse_lenient_yaml(text.split("\n"))


def test_a_well_formed_frontmatter() -> None:
    found = read("---\nname: a\ndescription: b\ntags: [x, y]\n---\n# Body")
    assert found.values == {"name": "a", "description": "b", "tags": ["x", "y"]}
    assert (found.body_line, found.warnings) == (6, [])


def test_scalars_stay_strings() -> None:
    found = read("---\nname: yes\nversion: 1.10\nupdated: 2026-01-01\nport: 0x1F\nnone: null\n---")
    assert list(found.values.values()) == ["yes", "1.10", "2026-01-01", "0x1F", ""]


def test_no_frontmatter() -> None:
    found = read("# Title\n\ntext")
    assert (found.values, found.body_line) == ({}, 1)
    assert codes("# Title\n\ntext") == ["no_frontmatter"]


def test_an_empty_frontmatter() -> None:
    assert (read("---\n---\ntext").values, read("---\n---\ntext").body_line) == ({}, 3)


def test_blank_lines_before_the_frontmatter() -> None:
    assert read("\n\n---\nname: a\n---\ntext").values == {"name": "a"}


def test_an_unquoted_colon_is_kept() -> None:
    found = read("---\nname: a\ndescription: Use when: the file: is there\n---\ntext")
    assert found.values["description"] == "Use when: the file: is there"
    assert codes("---\nname: a\ndescription: b: c\n---") == ["frontmatter_yaml"]
    assert found.warnings[0].line == 3


def test_a_star_and_a_template_are_kept() -> None:
    found = read("---\nname: {{name}}\nglob: *.py\ndescription: all\n---\n")
    assert found.values == {"name": "{{name}}", "glob": "*.py", "description": "all"}


def test_an_unclosed_quote_is_kept() -> None:
    found = read("---\nname: a\ndescription: 'it is\n  long\n---\ntext")
    assert found.values["description"] == "it is long"


def test_tabs_are_read() -> None:
    found = read("---\nname: a\nmetadata:\n\tauthor: b\n\tversion: 2\n---\ntext")
    assert found.values["metadata"] == {"author": "b", "version": "2"}


def test_an_unclosed_frontmatter_ends_where_the_body_begins() -> None:
    found = read("---\nname: a\ndescription: b\n\n# Body\n\ntext")
    assert found.values == {"name": "a", "description": "b"}
    assert found.body_line == 4
    assert [warning.code for warning in found.warnings] == ["frontmatter_unclosed"]


def test_an_unclosed_frontmatter_does_not_swallow_the_body_up_to_a_rule() -> None:
    found = read("---\nname: a\ndescription: b\n\n# Body\n\ntext\n\n---\n\nmore")
    assert found.values == {"name": "a", "description": "b"}
    assert found.body_line == 4


def test_comments_after_a_blank_line_belong_to_the_frontmatter() -> None:
    legal = "---\nname: a\ndescription: b\n\n# Legal\nlicense: MIT\n{}---\n\n# A\n\n---\ntext"
    found = read(legal.format("allowed-tools: Bash\n"))
    assert list(found.values) == ["name", "description", "license", "allowed-tools"]
    assert (found.body_line, found.warnings) == (9, [])
    assert read(legal.format("\n## End\n\n")).body_line == 11
    assert read(legal.format("\nA sentence.\n")).body_line == 4


def test_an_unopened_frontmatter() -> None:
    found = read("name: a\ndescription: b\n---\n# Body")
    assert (found.values, found.body_line) == ({"name": "a", "description": "b"}, 4)
    assert found.warnings[0].code == "frontmatter_unopened"


def test_a_doubled_frontmatter_is_merged_and_the_first_stands() -> None:
    found = read("---\nname: a\n---\n\n---\nname: b\ndescription: c\n---\ntext")
    assert found.values == {"name": "a", "description": "c"}
    assert found.body_line == 9
    assert found.warnings[0].code == "frontmatter_doubled"


def test_a_rule_behind_the_frontmatter_is_not_a_second_one() -> None:
    found = read("---\nname: a\n---\n---\nNote: text\n---\nmore")
    assert (found.values, found.body_line) == ({"name": "a"}, 4)


def test_a_frontmatter_behind_a_comment() -> None:
    found = read("<!-- made\nby a tool -->\n\n---\nname: a\n---\ntext")
    assert (found.values, found.body_line) == ({"name": "a"}, 7)
    assert found.warnings[0].code == "frontmatter_not_first"


def test_a_frontmatter_in_a_code_fence() -> None:
    found = read("```yaml\n---\nname: a\n---\n```\n# Body")
    assert (found.values, found.body_line) == ({"name": "a"}, 6)
    assert found.warnings[0].code == "frontmatter_fenced"


def test_a_fence_instead_of_the_dashes() -> None:
    found = read("```yaml\nname: a\ndescription: b\n```\n\n# Body")
    assert (found.values, found.body_line) == ({"name": "a", "description": "b"}, 5)


def test_conflict_marks_keep_our_side() -> None:
    ours, theirs = "description: ours", "description: theirs"
    text = f"---\nname: a\n<<<<<<< HEAD\n{ours}\n=======\n{theirs}\n>>>>>>> x\n---\n"
    assert read(text).values == {"name": "a", "description": "ours"}
    assert read(text).warnings[0].code == "conflict_marks"
    assert read(text).warnings[0].line == 3


def test_a_conflict_mark_before_the_frontmatter() -> None:
    assert read("<<<<<<< HEAD\n---\nname: a\n---\ntext").values == {"name": "a"}


def test_duplicate_keys_keep_the_first_that_is_not_empty() -> None:
    found = read("---\nname:\nname: a\nname: b\n---\n")
    assert found.values == {"name": "a"}
    assert [(warning.code, warning.line) for warning in found.warnings] == [
        ("duplicate_key", 3),
        ("duplicate_key", 4),
    ]


def test_a_list_is_no_mapping_and_stays_in_the_body() -> None:
    found = read("---\n- a\n- b\n---\ntext")
    assert (found.values, found.body_line) == ({}, 1)
    assert "frontmatter_not_mapping" in [warning.code for warning in found.warnings]


def test_text_between_rules_stays_in_the_body() -> None:
    found = read("---\nSome text only\n---\nmore")
    assert (found.values, found.body_line) == ({}, 1)


def test_aliases_of_scalars_are_read_up_to_the_limit() -> None:
    assert read("---\na: &x one\nname: *x\n---\n").values["name"] == "one"
    many = "".join(f"k{n}: *x\n" for n in range(4))
    assert codes(f"---\na: &x one\n{many}---\n") == ["frontmatter_yaml"]


def test_an_alias_bomb_is_not_expanded() -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
    found = read(f"---\nname: n\n{bomb}---\ntext")
    assert found.values["name"] == "n"
    assert found.warnings[0].code == "frontmatter_yaml"


def test_deep_nesting_is_read_line_by_line() -> None:
    found = read("---\nname: n\ndeep: " + "[" * 2_000 + "\n---\ntext")
    assert found.values["name"] == "n"
    assert found.warnings[0].code == "frontmatter_yaml"


def test_a_long_frontmatter_is_cut() -> None:
    found = read("---\nname: n\ndescription: " + "word " * 5_000 + "\n---\ntext")
    assert found.values["name"] == "n"
    assert len(str(found.values["description"])) < 10_000
    assert found.warnings[0].code == "frontmatter_long"


def test_toml() -> None:
    found = read('+++\nname = "a"\nflag = true\ntags = ["x"]\n[metadata]\nn = 1\n+++\ntext')
    assert found.values == {"name": "a", "flag": "true", "tags": ["x"], "metadata": {"n": "1"}}
    assert found.body_line == 8


def test_broken_toml_is_read_line_by_line() -> None:
    assert read('+++\nname = "a"\nother = what\n+++\ntext').values["name"] == "a"


def test_json() -> None:
    found = read('{\n  "name": "a",\n  "tags": ["x", 1, null]\n}\n# Body')
    assert found.values == {"name": "a", "tags": ["x", "1", ""]}
    assert found.body_line == 5


def test_lone_surrogates_from_escapes_are_replaced() -> None:
    assert read('{\n"name": "a\\ud800"\n}').values["name"] == "a?"


def test_loose_block_scalars() -> None:
    found = loose("a: |\n  one\n\n  two\nb: >-\n  one\n  two\n\n  three\nc: d: e")
    assert found == {"a": "one\n\ntwo", "b": "one two\nthree", "c": "d: e"}


def test_loose_lists_and_mappings() -> None:
    found = loose(
        "a:\n  - one\n  - 'two'\n    more\nb:\n- x: y\nc: [p, \"q\"]\nd:\n  e: f\n  g:\n    h: i"
    )
    assert found == {
        "a": ["one", "two more"],
        "b": ["x: y"],
        "c": ["p", "q"],
        "d": {"e": "f", "g": {"h": "i"}},
    }


def test_loose_continuation_lines_and_comments() -> None:
    assert loose("a: one\n  two\nthree\n# comment\nb: 'it''s'") == {
        "a": "one two three",
        "b": "it's",
    }


def test_loose_values_end_before_comments() -> None:
    found = loose(
        "description: Use when: foo # not C#\nlicense: MIT # ok\ntools: [Bash, 'a # b'] # c\n"
        "language: C#\nurl: 'a # b' # c\nempty: # c\nlist: # c\n  - one # c\n  - two#\nlink: #1"
    )
    assert found == {
        "description": "Use when: foo",
        "license": "MIT",
        "tools": ["Bash", "a # b"],
        "language": "C#",
        "url": "a # b",
        "empty": "",
        "list": ["one", "two#"],
        "link": "#1",
    }


def test_loose_quotes_over_lines_hide_keys() -> None:
    assert loose('a: "one\nb: two"\nc: d') == {"a": "one b: two", "c": "d"}


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet="ab:-\n \"'|>[]{}#&*!%@\t,?", max_size=200))
def test_any_text_between_dashes_is_read(text: str) -> None:
    lines = f"---\n{text}\n---\nbody".split("\n")
    assert 1 <= parse_frontmatter(lines, LIMITS).body_line <= len(lines)


def test_loose_lists_of_mappings() -> None:
    found = loose("a:\n  - name: one\n    kind: x: y\n  - name: two\nb: c: d")
    assert found == {"a": [{"name": "one", "kind": "x: y"}, "name: two"], "b": "c: d"}


def test_loose_text_behind_a_quote_is_kept() -> None:
    assert loose('a: "One." Two.\nb: c') == {"a": "One. Two.", "b": "c"}


def test_loose_lists_keep_commas_in_quotes() -> None:
    found = loose('a: ["x, y", \'p, q\', z, , "open, e]\nb: c: d')
    assert found["a"] == ["x, y", "p, q", "z", "open", "e"]
