"""Directories that a message or a token may name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from config.errors import UsageError
from graph.records import Source
from workers.library.access.allowed_roots import resolve_root


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """An allowed directory with a skill folder, a file, links that lead out, and one in a circle;
    next to it a directory that is not allowed."""
    found = tmp_path / "allowed"
    (found / "team").mkdir(parents=True)
    (found / "file").write_text("x")
    (tmp_path / "secret").mkdir()
    (tmp_path / "allowed-too").mkdir()
    (found / "out").symlink_to(tmp_path / "secret")
    (found / "circle").symlink_to(found / "circle")
    (found / "~").mkdir()
    return found


def checked(allowed: Path, root: str, source_id: str = "team") -> str:
    graph: Any = SimpleNamespace(list_sources=lambda: [Source("known", "directory", "/srv/known")])
    return resolve_root(graph, source_id, root, [allowed / "missing", allowed], "x.roots")


def test_what_is_allowed_or_known(allowed: Path) -> None:
    assert checked(allowed, f"{allowed}/team/../team") == str(allowed / "team")
    assert checked(allowed, str(allowed)) == str(allowed)
    assert checked(allowed, "/srv/known", "known") == "/srv/known"


@pytest.mark.parametrize(
    "root",
    [
        *("{0}/out", "{0}/circle", "{0}/circle/x", "{0}/file", "{0}/none", "{0}/..", "{0}-too"),
        *("{0}/../secret", "{0}/team/../../secret", "/", "/etc", "", "/srv/known", "{0}/\0"),
        *(
            "{0}/" + "x" * 4_000,
            "file://{0}/team",
            "https://host/x.git",
            "ext::sh -c true",
            "\ud800",
        ),
    ],
)
def test_what_leads_elsewhere_is_refused(allowed: Path, root: str) -> None:
    with pytest.raises(UsageError, match=r"x\.roots"):
        checked(allowed, root.format(allowed))


@pytest.mark.parametrize("root", ["team", ".", "~", "~/x", "~root", "../allowed/team"])
def test_what_is_relative_is_refused_wherever_the_process_runs(
    allowed: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(allowed)
    with pytest.raises(UsageError, match=r"x\.roots"):
        checked(allowed, root)
