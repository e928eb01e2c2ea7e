"""Static files of the console: those of others as they were released, none from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

import workers.console
from workers.console.static_files import StaticFiles

FOLDER = Path(workers.console.__file__).parent
VENDORED = sorted((FOLDER / "assets").glob("*.min.*js"))


@pytest.mark.parametrize("file", VENDORED, ids=lambda file: file.name)
def test_a_vendored_file_has_its_licence_and_hash(file: Path) -> None:
    digest, name = file.with_name(f"{file.name}.sha256").read_text(encoding="utf-8").split()
    assert name == file.name
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert file.with_name(f"{file.name.partition('.')[0]}.LICENSE.txt").stat().st_size > 300


def test_there_is_a_vendored_file() -> None:
    assert VENDORED


def test_no_template_has_inline_code_or_names_another_host() -> None:
    templates = list((FOLDER / "templates").rglob("*.html"))
    assert len(templates) > 20
    for file in templates:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|hx-on|javascript:", text), file
        assert not re.search(r"https?://|//[a-z]", text), file
        assert not re.search(r"<script(?! src=)", text), file
        assert "|safe" not in text, file


def test_files_are_served_by_name_and_hash_alone() -> None:
    files = StaticFiles()
    url = files.get_url("console.css")
    digest = url.split("/")[-2]
    response = files.respond(digest, "console.css", "gzip, br")
    assert response.headers["content-encoding"] == "gzip"
    plain = files.respond(digest, "console.css", "")
    assert gzip.decompress(bytes(response.body)) == bytes(plain.body)
    for name in ("none.css", "../app.py", "htmx.min.js"):
        assert files.respond(digest, name, "").status_code == 404
    with pytest.raises(KeyError):
        files.get_url("none.css")
