"""Licences as people write them: what they mean, and what a list allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.licences import (
    detect_licence,
    is_licence_allowed,
    is_licence_file,
    licence_names,
    normalise_allowed,
    resolve_licence,
    spdx_identifier,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mit", "MIT"),
        ("The MIT  license", "MIT"),
        ("MIT License.", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache 2", "Apache-2.0"),
        ("3-clause BSD license", "BSD-3-Clause"),
        ("Simplified BSD-2-Clause", "BSD-2-Clause"),
        ("GPLv3 license", "GPL-3.0"),
        ("GNU General Public License v3.0", "GPL-3.0"),
        ("AGPL-3.0", "AGPL-3.0"),
        ("cc-by-4.0", "CC-BY-4.0"),
        ("GPL", "GPL"),
        ("Apache 9", "Apache 9"),
        (
            "Proprietary. LICENSE.txt has  complete terms",
            "Proprietary. LICENSE.txt has complete terms",
        ),
        ("MIT is what we would like", "MIT is what we would like"),
    ],
)
def test_names_become_identifiers_where_they_are_known(text: str, meant: str) -> None:
    assert spdx_identifier(text) == meant


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("MIT license", True),
        ("MIT OR LicenseRef-Ours", True),
        ("LicenseRef-Ours AND MIT", False),
        ("(MIT AND Apache-2.0) OR LicenseRef-Ours", True),
        ("MIT AND (Apache-2.0 OR LicenseRef-Ours)", True),
        ("GPL-3.0-or-later", True),
        ("GPL-3.0+", True),
        ("GPL-3.0-only WITH Classpath-exception-2.0", True),
        ("GPL-2.0-only", False),
        ("House rules", True),
        ("MIT OR", False),
        ("MIT OR (", False),
        ("(MIT", False),
        ("MIT WITH", False),
        ("OR", False),
        ("MIT or later", False),
        ("not MIT", False),
        ("(" * 5_000 + " OR MIT", False),
        ("", False),
        ("Unknown", False),
    ],
)
def test_what_a_list_allows(text: str, allowed: bool) -> None:
    rules = normalise_allowed(["MIT", "Apache 2.0", "GPL-3.0-only", "house  rules"])
    assert is_licence_allowed(text, rules) is allowed


def test_what_states_none_is_unknown() -> None:
    for text in ("", "  ", "unknown", "Unknown "):
        assert is_licence_allowed(text, normalise_allowed(["unknown"]))
    assert not is_licence_allowed("MIT", normalise_allowed(["unknown"]))


@given(st.text(max_size=60), st.lists(st.sampled_from(["(", ")", "OR", "AND", "WITH", "MIT", "X"])))
def test_whatever_is_stated_has_an_answer(text: str, words: list[str]) -> None:
    rules = normalise_allowed(["MIT"])
    assert is_licence_allowed(text, rules) in (True, False)
    if is_licence_allowed(" ".join(words), rules):
        assert "MIT" in words
    assert set(licence_names(text)) <= {" ".join(text.split()), spdx_identifier(text)} - {""}


def test_a_licence_file_is_known_by_its_words_and_its_place() -> None:
    assert (
        detect_licence("                Apache License\n          Version 2.0, January 2004")
        == "Apache-2.0"
    )
    assert detect_licence("All rights reserved.") == ""
    named = ("LICENSE", "licence.md", "COPYING.rst", "License.MIT.txt")
    others = ("a/LICENSE", "licenses.py", "license.sh", "LICENSE.py", "license.md.sh", "licence.")
    assert [path for path in (*named, *others) if is_licence_file(path)] == list(named)
    assert resolve_licence("", "") == ""
