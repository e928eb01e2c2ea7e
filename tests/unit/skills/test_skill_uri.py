"""URIs of skills: written and read back, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.skill_uri import (
    MAX_URI_LENGTH,
    SkillPlace,
    UriError,
    get_inner_prefix,
    is_skill_name,
    list_outer_ids,
    make_file_uri,
    make_skill_uri,
    parse_skill_uri,
)

NAMES = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True)
SEGMENTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8
).filter(lambda text: text not in (".", ".."))
SOURCES = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True)


@pytest.mark.parametrize(
    ("skill_id", "name", "uri"),
    [
        ("examples:kiln", "kiln", "skill://examples/kiln"),
        ("team:a/b/kiln", "kiln", "skill://team/a/b/kiln"),
        ("team:tools/pdf", "pdf-processing", "skill://team/tools/@pdf/pdf-processing"),
        ("repo:.", "whole-repository", "skill://repo/@/whole-repository"),
        ("org/repo:kiln", "kiln", "skill://org%2Frepo/kiln"),
        ("c:glass/blowing 100% 吹", "blow", "skill://c/glass/@blowing%20100%25%20%E5%90%B9/blow"),
        ("c:@odd", "odd", "skill://c/@%40odd/odd"),
    ],
)
def test_a_uri_names_source_path_and_name(skill_id: str, name: str, uri: str) -> None:
    assert make_skill_uri(skill_id, name) == uri
    place = parse_skill_uri(uri)[0]
    assert place == SkillPlace(skill_id, name, ())
    file = make_file_uri(uri, "references/FORMS.md")
    rest = ("references", "FORMS.md")
    assert SkillPlace(skill_id, name, rest) in parse_skill_uri(file)


@given(SOURCES, st.lists(SEGMENTS, max_size=4), NAMES, st.lists(SEGMENTS, max_size=3))
def test_every_uri_is_read_back(source: str, path: list[str], name: str, file: list[str]) -> None:
    skill_id = f"{source}:{'/'.join(path) or '.'}"
    uri = make_skill_uri(skill_id, name)
    if file:
        uri = make_file_uri(uri, "/".join(file))
    assert uri.isascii()
    assert SkillPlace(skill_id, name, tuple(file)) in parse_skill_uri(uri)


@given(SOURCES, st.lists(SEGMENTS, max_size=3), NAMES, SOURCES, st.lists(SEGMENTS, max_size=3))
def test_two_skills_never_share_a_uri(
    source: str, path: list[str], name: str, other_source: str, other_path: list[str]
) -> None:
    one = f"{source}:{'/'.join(path) or '.'}"
    other = f"{other_source}:{'/'.join(other_path) or '.'}"
    if one != other:
        assert make_skill_uri(one, name) != make_skill_uri(other, name)


def test_the_innermost_skill_comes_first() -> None:
    places = parse_skill_uri("skill://c/outer/inner/SKILL.md")
    assert [place.skill_id for place in places] == [
        "c:outer/inner/SKILL.md",
        "c:outer/inner",
        "c:outer",
    ]


@pytest.mark.parametrize(
    "uri",
    [
        "skill://c/kiln/../../etc/passwd",
        "skill://c/kiln/./SKILL.md",
        "skill://c/kiln/%2e%2e/other/SKILL.md",
        "skill://c/kiln/%2E%2E/other/SKILL.md",
        "skill://c/kiln/..%2f..%2fetc/passwd",
        "skill://c/kiln%2fSKILL.md",
        "skill://c/kiln%2FSKILL.md",
        "skill://c%2F..%2Fd/kiln/SKILL.md",
        "skill://../kiln/SKILL.md",
        "skill:///etc/passwd",
        "skill://c//etc/passwd",
        "skill://c/kiln//SKILL.md",
        "skill://c/kiln/SKILL.md/",
        "skill://c/kiln/SKILL.md%00",
        "skill://c/kiln/SKILL.md\0",
        "skill://c/kiln/%00",
        "skill://c/kiln/%ff",
        "skill://c/kiln/\ud800",
        "skill://c/kiln/吹.md",
        "skill://c/kiln/%zz",
        "skill://c/kiln/%4bILN.md",
        "skill://c/kiln/a b",
        "skill://c/kiln/a?b",
        "skill://c/kiln/a#b",
        "skill://c/kiln/a\\b",
        "SKILL://c/kiln/SKILL.md",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "skill://",
        "skill://c",
        "skill://@c/kiln/SKILL.md",
        "skill://c/@kiln/kiln/SKILL.md",
        "skill://c/@kiln",
        "skill://c/x/@/name/SKILL.md",
        "skill://c/@a/b/@c/d",
        "skill://c/" + "a/" * 200 + "SKILL.md",
        "skill://c/" + "a" * MAX_URI_LENGTH,
    ],
)
def test_no_other_form_is_accepted(uri: str) -> None:
    with pytest.raises(UriError, match="not the URI of a skill"):
        parse_skill_uri(uri)


def test_a_double_encoding_is_the_name_of_a_folder_and_no_path() -> None:
    (*_, outer) = parse_skill_uri("skill://c/%252e%252e/SKILL.md")
    assert outer == SkillPlace("c:%2e%2e", "%2e%2e", ("SKILL.md",))


@given(st.text(max_size=40))
def test_any_text_is_refused_or_canonical(text: str) -> None:
    uri = "skill://" + text
    try:
        places = parse_skill_uri(uri)
    except UriError:
        return
    for place in places:
        parts = [*place.skill_id.partition(":")[2].split("/"), *place.rest]
        assert ".." not in parts
        assert "." not in parts
        assert not any("\0" in part or "/" in part for part in parts)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("kiln", True),
        ("a-b-2", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a--b", False),
        ("Kiln", False),
        ("a_b", False),
        ("吹", False),
        ("a\n", False),
    ],
)
def test_names_by_the_specification(name: str, valid: bool) -> None:
    assert is_skill_name(name) is valid


def test_outer_ids_are_those_of_the_folders_around() -> None:
    assert list_outer_ids("team:a/b/kiln") == ["team:a/b", "team:a", "team:."]
    assert list_outer_ids("team:.") == []
    for outer in list_outer_ids("team:a/b/kiln"):
        assert "team:a/b/kiln".startswith(get_inner_prefix(outer))
