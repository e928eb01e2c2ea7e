"""Skills and their files as others load them, from each kind of source."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import NotFoundError, TransientError
from skills.events import GitFetchOptions, SkillUpserted, SourceChanged, SourceRemoved
from skills.skill_uri import make_file_uri, make_skill_uri
from tasks.sources.uploads.staging import stage_upload
from tasks.sources.uploads.store import open_upload_store
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.git_remote import PushedRepository, served_over_http
from workers.backend.embedded import EmbeddedBackend
from workers.library import served_skills
from workers.library.served_skills import ServedSkill, ServedSkills

BINARY = bytes(range(256)) * 8
GIT = {"protocols": ["http"], "allow_private": True, "seconds": 120}
POLICY = {"sources": {"secret": "withhold"}}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with tiny_backend(tmp_path / "home", git=GIT, policy=POLICY) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with skills of every form."""
    root = tmp_path / "team"
    kiln = write_skill(root, "kiln", "Fire a kiln")
    (kiln / "references").mkdir()
    (kiln / "references" / "CONES.md").write_text("# Cones\n")
    (kiln / "assets").mkdir()
    (kiln / "assets" / "cone.bin").write_bytes(BINARY)
    write_skill(root, "kiln/glaze", "Glaze a pot")
    (root / "kiln/glaze/recipe.txt").write_text("copper\n")
    write_skill(root, "tools/pdf", "Handle PDF files", name="pdf-processing")
    windows = (root / "kiln/SKILL.md").read_bytes().replace(b"\n", b"\r\n")
    write_skill(root, "windows", "Written elsewhere")
    (root / "windows/SKILL.md").write_bytes(windows.replace(b"name: kiln", b"name: windows"))
    mixed = "---\nname: mixed\ndescription: Ends of lines\n---\r\n# Mixed\r\n\nBody.\n"
    write_skill(root, "mixed")
    (root / "mixed/SKILL.md").write_bytes(mixed.encode())
    write_skill(root, "Odd Name", "Not of the format")
    write_skill(root, "long", "a" * 1_100)
    return root


def sync(backend: EmbeddedBackend, source: str, root: Path) -> None:
    backend.submit(SourceChanged(source_id=source, root=str(root)), "skillbus/tests")
    settle(backend)


def served(backend: EmbeddedBackend) -> ServedSkills:
    return ServedSkills(backend.settings, backend.skills)


def check(skills: ServedSkills, skill: ServedSkill) -> None:
    """Every file of the manifest can be read, and is what the manifest says."""
    assert skills.get(skill.skill_file_uri) == skill
    assert len({file.uri for file in skill.files}) == len(skill.files)
    contents = skills.read_all(skill)
    for file, whole in zip(skill.files, contents, strict=True):
        content = skills.read(file.uri).content
        assert content == whole
        assert len(content) == file.size
        assert hashlib.sha256(content).hexdigest() == file.sha256


def test_a_directory_is_served_whole(backend: EmbeddedBackend, root: Path) -> None:
    sync(backend, "team", root)
    skills = served(backend)
    page = skills.list_page("", 50)
    by_id = {skill.skill_id: skill for skill in page.skills}
    assert list(by_id) == [
        "team:kiln",
        "team:kiln/glaze",
        "team:mixed",
        "team:tools/pdf",
        "team:windows",
    ]
    assert dict(page.left_out) == {
        "team:Odd Name": "its name is not 1 to 64 of a-z, 0-9 and single hyphens between them",
        "team:long": "its description has 1100 characters; 1024 are allowed",
    }
    assert page.next_after == ""
    for skill in page.skills:
        check(skills, skill)
    kiln = by_id["team:kiln"]
    assert [file.path for file in kiln.files] == [
        "SKILL.md",
        "assets/cone.bin",
        "glaze/SKILL.md",
        "glaze/recipe.txt",
        "references/CONES.md",
    ]
    assert kiln.uri == "skill://team/kiln"
    assert kiln.frontmatter == {"name": "kiln", "description": "Fire a kiln"}
    assert by_id["team:kiln/glaze"].files[0].uri == kiln.files[2].uri
    assert by_id["team:tools/pdf"].uri == "skill://team/tools/@pdf/pdf-processing"
    assert skills.read("skill://team/kiln/assets/cone.bin").content == BINARY
    assert b"\r\n" in skills.read("skill://team/windows/SKILL.md").content
    children = skills.list_directory("skill://team/kiln")
    assert [(child.name, child.size is None) for child in children] == [
        ("SKILL.md", False),
        ("assets", True),
        ("glaze", True),
        ("references", True),
    ]
    (child,) = skills.list_directory("skill://team/kiln/assets")
    assert (child.name, child.size) == ("cone.bin", len(BINARY))
    for wrong in ("skill://team", "skill://team/kiln/SKILL.md", "skill://team/kiln/none"):
        with pytest.raises(NotFoundError):
            skills.list_directory(wrong)
    with pytest.raises(NotFoundError, match=r"served at skill://team/tools/@pdf/pdf-processing"):
        skills.get("skill://team/tools/pdf/SKILL.md")
    with pytest.raises(NotFoundError, match="1024 are allowed"):
        skills.get("skill://team/long/SKILL.md")
    assert skills.find_uris(["team:kiln", "team:long", "team:none"]) == {
        "team:kiln": "skill://team/kiln/SKILL.md"
    }


def test_pages_survive_changes_between_them(backend: EmbeddedBackend, tmp_path: Path) -> None:
    root = tmp_path / "many"
    for number in range(7):
        write_skill(root, f"skill-{number}", f"Do thing {number}")
    sync(backend, "many", root)
    skills = served(backend)
    first = skills.list_page("", 3)
    assert first.next_after == "many:skill-2"
    backend.submit(SkillUpserted(skill_id="many:skill-0"), "skillbus/tests")
    (root / "skill-2" / "SKILL.md").unlink()
    write_skill(root, "skill-1b", "Come late")
    sync(backend, "many", root)
    second = skills.list_page(first.next_after, 3)
    third = skills.list_page(second.next_after, 3)
    found = [one.skill_id for page in (first, second, third) for one in page.skills]
    assert found == [f"many:skill-{number}" for number in range(7)]


def test_nothing_is_served_but_what_was_published(backend: EmbeddedBackend, root: Path) -> None:
    sync(backend, "team", root)
    skills = served(backend)
    text = (root / "kiln/SKILL.md").read_bytes()
    secret = root.parent / "secret.txt"
    secret.write_text("secret")
    cones, binary = root / "kiln/references/CONES.md", root / "kiln/assets/cone.bin"
    cones.write_text("# Other\n")
    binary.unlink()
    binary.symlink_to(secret)
    (root / "kiln/SKILL.md").write_bytes(text + b"More.\n")
    (root / "mixed/SKILL.md").write_text("changed")
    (root / "kiln/new.txt").write_text("new")
    (root / "kiln/glaze/recipe.txt").unlink()
    assert skills.read("skill://team/kiln/SKILL.md").content == text
    for name in ("kiln/references/CONES.md", "kiln/assets/cone.bin", "kiln/glaze/recipe.txt"):
        with pytest.raises(TransientError, match="does not match the published revision"):
            skills.read(f"skill://team/{name}")
    with pytest.raises(TransientError, match="does not match the published revision"):
        skills.read("skill://team/mixed/SKILL.md")  # its line ends are in the source alone
    with pytest.raises(NotFoundError):
        skills.read("skill://team/kiln/new.txt")
    reasons = dict(skills.list_page("", 50).left_out)
    assert "does not match the published revision" in reasons["team:mixed"]
    sync(backend, "team", root)
    assert skills.read("skill://team/kiln/new.txt").content == b"new"
    assert skills.read("skill://team/kiln/references/CONES.md").content == b"# Other\n"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedSkills, Path]]:
    """A skill with links out of its folder and out of the source, and a withheld source."""
    base = tmp_path_factory.mktemp("hostile")
    (base / "secret.txt").write_text("secret")
    kiln = write_skill(base / "team", "kiln", "Fire a kiln")
    (kiln / "here.txt").write_text("here")
    (kiln / "link.txt").symlink_to(base / "secret.txt")
    (kiln / "folder").symlink_to(base)
    write_skill(base / "secret", "hidden", "Open the vault")
    (base / "secret/hidden/key.txt").write_text("1234")
    with tiny_backend(base / "home", policy=POLICY) as backend:
        sync(backend, "team", base / "team")
        sync(backend, "secret", base / "secret")
        yield served(backend), base


@pytest.mark.parametrize(
    "uri",
    [
        "skill://team/kiln/../../secret.txt",
        "skill://team/kiln/%2e%2e/%2e%2e/secret.txt",
        "skill://team/kiln/%2E%2E/secret.txt",
        "skill://team/kiln/..%2f..%2fsecret.txt",
        "skill://team/kiln/..%2F..%2Fsecret.txt",
        "skill://team/kiln/%252e%252e/secret.txt",
        "skill://team/kiln/%252e%252e%252fsecret.txt",
        "skill://team/kiln/..%5c..%5csecret.txt",
        "skill://team/kiln/link.txt",
        "skill://team/kiln/folder/secret.txt",
        "skill://team/KILN/SKILL.md",
        "skill://TEAM/kiln/SKILL.md",
        "skill://team/kiln/skill.md",
        "skill://team/kiln/Here.txt",
        "skill://team/kiln/here.txt%00.md",
        "skill://team/kiln/here.txt\0",
        "skill://team/kiln/here.txt%0a",
        "skill://team/kiln/" + "a" * 300,
        "skill://team/kiln/" + "a/" * 80 + "b",
        "skill://team//etc/passwd",
        "skill:///etc/passwd",
        "skill://team/%2fetc%2fpasswd",
        "skill://team/kiln//here.txt",
        "skill://team/kiln/./here.txt",
        "skill://team/kiln/",
        "skill://team/kiln",
        "skill://team/kiln/here.txt/",
        "skill://team/kiln/h%65re.txt",
        "file:///etc/passwd",
        "/etc/passwd",
    ],
)
def test_no_uri_leads_out_of_a_skill(hostile: tuple[ServedSkills, Path], uri: str) -> None:
    with pytest.raises(NotFoundError):
        hostile[0].read(uri)
    with pytest.raises(NotFoundError):
        hostile[0].get(uri)


@given(text=st.text(st.sampled_from("abekilntmxh/.%25eF20c\\\0 @"), max_size=30))
def test_any_uri_gives_a_published_file_or_none(
    hostile: tuple[ServedSkills, Path], text: str
) -> None:
    skills, _ = hostile
    try:
        found = skills.read(f"skill://team/{text}")
    except NotFoundError:
        return
    assert found.name in ("SKILL.md", "here.txt")


def test_what_the_policy_withholds_is_not_served(hostile: tuple[ServedSkills, Path]) -> None:
    skills, _ = hostile
    page = skills.list_page("", 50)
    assert [skill.skill_id for skill in page.skills] == ["team:kiln"]
    assert page.left_out == []
    for uri in ("skill://secret/hidden/SKILL.md", "skill://secret/hidden/key.txt"):
        with pytest.raises(NotFoundError) as refused:
            skills.read(uri)
        unknown = uri.replace("hidden", "unknown")
        with pytest.raises(NotFoundError) as missing:
            skills.read(unknown)
        assert str(refused.value) == str(missing.value).replace("unknown", "hidden")
    for method in (skills.get, skills.list_directory):
        with pytest.raises(NotFoundError, match="served at skill://secret/hidden"):
            method("skill://secret/hidden/SKILL.md")
    with pytest.raises(NotFoundError):
        skills.list_directory("skill://secret/hidden")
    assert skills.find_uris(["secret:hidden"]) == {}


def test_a_withheld_skill_inside_another_is_no_file_of_it(
    tmp_path: Path,
) -> None:
    root = tmp_path / "team"
    write_skill(root, "outer", "Do it all")
    write_skill(root, "outer/inner", "Do a part", license="Proprietary")
    write_skill(root, "outer", "Do it all", license="MIT")
    with tiny_backend(tmp_path / "home", policy={"licences": ["MIT"]}) as backend:
        sync(backend, "team", root)
        skills = served(backend)
        (outer,) = skills.list_page("", 50).skills
        assert [file.path for file in outer.files] == ["SKILL.md"]
        assert skills.get("skill://team/outer/SKILL.md") == outer
        with pytest.raises(NotFoundError):
            skills.read("skill://team/outer/inner/SKILL.md")


def test_a_skill_beyond_the_limits_is_left_out(
    backend: EmbeddedBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(backend, "team", root)
    skills = served(backend)
    monkeypatch.setattr(served_skills, "MAX_FILES", 4)
    reasons = dict(skills.list_page("", 50).left_out)
    assert reasons["team:kiln"] == "it has more than 4 files"
    monkeypatch.setattr(served_skills, "MAX_FILES", 5)
    assert "team:kiln" not in dict(skills.list_page("", 50).left_out)
    monkeypatch.setattr(served_skills, "MAX_BYTES", 1_000)
    assert "bytes; 1000 are allowed" in dict(skills.list_page("", 50).left_out)["team:kiln"]
    with pytest.raises(NotFoundError):
        skills.read("skill://team/kiln/assets/cone.bin")


def test_a_skill_at_the_root_of_a_source(backend: EmbeddedBackend, tmp_path: Path) -> None:
    root = tmp_path / "single"
    write_skill(root, "", "Do all", name="whole")
    write_skill(root, "whole", "Do one thing")
    (root / "notes.md").write_text("notes")
    sync(backend, "single", root)
    skills = served(backend)
    whole, inner = skills.list_page("", 50).skills
    assert (whole.uri, inner.uri) == ("skill://single/@/whole", "skill://single/whole")
    assert [file.path for file in whole.files] == ["SKILL.md", "notes.md", "whole/SKILL.md"]
    for skill in (whole, inner):
        check(skills, skill)
    assert skills.read("skill://single/@/whole/whole/SKILL.md").revision.key.skill_id == (
        "single:whole"
    )
    with pytest.raises(NotFoundError):
        skills.read("skill://single/notes.md")


def test_a_git_source_is_read_from_its_objects(backend: EmbeddedBackend, tmp_path: Path) -> None:
    remote = PushedRepository(tmp_path / "remotes")
    kiln = write_skill(remote.tree, "skills/kiln", "Fire a kiln")
    (kiln / "cone.bin").write_bytes(BINARY)
    (kiln / "link.txt").symlink_to("/etc/passwd")
    mixed = "---\nname: mixed\ndescription: Ends\n---\r\n# Mixed\r\n\nBody.\n"
    write_skill(remote.tree, "skills/mixed")
    (remote.tree / "skills/mixed/SKILL.md").write_bytes(mixed.encode())
    remote.push()
    with served_over_http(remote.bare.parent) as address:
        git = GitFetchOptions(path="skills")
        event = SourceChanged(source_id="team", root=f"{address}/skills.git", git=git)
        event_id = backend.submit(event, "skillbus/tests")
        wait_for(lambda: backend.journal.get_job(event_id).state != "accepted")
        settle(backend)
        skills = served(backend)
        found = skills.list_page("", 50).skills
        assert [[file.path for file in skill.files] for skill in found] == [
            ["SKILL.md", "cone.bin"],
            ["SKILL.md"],
        ]
        for skill in found:
            check(skills, skill)
        (kiln / "cone.bin").write_bytes(b"other")
        remote.push()
        assert skills.read("skill://team/kiln/cone.bin").content == BINARY
    # The mirror has the objects: the remote is not needed.
    assert skills.read("skill://team/kiln/cone.bin").content == BINARY
    with pytest.raises(NotFoundError):
        skills.read("skill://team/kiln/link.txt")


def test_an_upload_is_read_from_its_package(backend: EmbeddedBackend, tmp_path: Path) -> None:
    archive = tmp_path / "skills.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr(
            "kiln/SKILL.md", "---\nname: kiln\ndescription: Fire\n---\n# Kiln\n\nDo.\n"
        )
        written.writestr("kiln/cone.bin", BINARY)
    store = open_upload_store(backend.settings)
    with store.staging() as place:
        staged = stage_upload(backend.settings, store, place, archive, "mine", "")
    backend.accept(staged.event)
    settle(backend)
    skills = served(backend)
    (kiln,) = skills.list_page("", 50).skills
    check(skills, kiln)
    assert skills.read("skill://mine/kiln/cone.bin").content == BINARY
    backend.submit(SourceRemoved(source_id="mine"), "skillbus/tests")
    settle(backend)
    with pytest.raises(NotFoundError):
        skills.read("skill://mine/kiln/cone.bin")


def test_a_name_that_is_not_utf8_leaves_the_skill_out(
    backend: EmbeddedBackend, tmp_path: Path
) -> None:
    root = tmp_path / "team"
    kiln = write_skill(root, "kiln", "Fire a kiln")
    (Path(str(kiln).encode().decode()) / "caf\udce9.txt").write_text("x")
    sync(backend, "team", root)
    page = served(backend).list_page("", 50)
    assert dict(page.left_out) == {"team:kiln": "the name of one of its files is not UTF-8"}


def test_odd_names_have_uris(backend: EmbeddedBackend, tmp_path: Path) -> None:
    root = tmp_path / "team"
    for folder in ("glass/blowing 100% 吹玻璃", "@at", "50%25", "a+b"):
        write_skill(root, folder, "Do it", name="craft")
        (root / folder / "read me %2e.txt").write_text(folder)
    sync(backend, "team", root)
    skills = served(backend)
    page = skills.list_page("", 50)
    assert len(page.skills) == 4
    for skill in page.skills:
        check(skills, skill)
        path = skill.skill_id.partition(":")[2]
        assert skill.uri == make_skill_uri(skill.skill_id, "craft")
        uri = make_file_uri(skill.uri, "read me %2e.txt")
        assert skills.read(uri).content.decode() == path
