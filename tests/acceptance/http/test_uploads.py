"""Skills by value: over HTTP, by command and in events, whole whatever happens in between."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from config.settings import LimitSettings, Settings
from skills.events import SkillUpserted, new_event
from tasks.sources.uploads.package import read_manifest, read_package
from tasks.sources.uploads.reader import UploadReader
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics

MARKDOWN = {"Content-Type": "text/markdown"}
ZIP = {"Content-Type": "application/zip"}
ROUNDS = 3


def skill(name: str, body: str) -> bytes:
    return f"---\nname: {name}\ndescription: {body}\n---\n# {name}\n\n{body}\n".encode()


def zipped(**files: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


@pytest.fixture(scope="module")
def served(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Skillbus]:
    base = tmp_path_factory.mktemp("uploads")
    skillbus = Skillbus(fork_server, base / "home", SKILLBUS_UPLOADS__MEGABYTES="1")
    skillbus("sync", str(write_topics(base / "crafts")), "--until", "searchable")
    with skillbus.serving():
        yield skillbus


@pytest.fixture
def client(served: Skillbus) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def ended(client: httpx.Client, accepted: httpx.Response) -> dict[str, Any]:
    """The event that an upload became, once it is carried out and its skills are settled."""
    assert accepted.status_code == 202, accepted.text
    assert accepted.headers["location"] == f"/v1/events/{accepted.json()['id']}"

    def is_over() -> dict[str, Any] | None:
        state: dict[str, Any] = client.get(accepted.headers["location"]).json()
        waiting = client.get("/v1/status").json()["skills"]["waiting"]
        return state if state["state"] != "accepted" and not waiting else None

    found: dict[str, Any] = wait_for(is_over)
    return found


def upload(client: httpx.Client, content: bytes, headers: dict[str, str], query: str) -> Any:
    return client.post(f"/v1/skills?{query}", content=content, headers=headers)


def shown(client: httpx.Client, skill_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/skills/{skill_id}").json()
    return found


# -- over HTTP


def test_one_skill_comes_is_found_changes_and_goes(served: Skillbus, client: httpx.Client) -> None:
    text = skill("otter-census", "Count river otters from their tracks in fresh snow.")
    sent = upload(client, text, MARKDOWN, "source=nature&path=otter-census")
    assert sent.json() == {
        "id": sent.json()["id"],
        "skills": ["nature:otter-census"],
        "left_out": 0,
    }
    assert ended(client, sent)["outcome"] == {"found": 1, "changed": 1, "removed": 0}
    assert "nature:otter-census" in served.chosen("count river otters from tracks in snow")
    sources = {one["source_id"]: one for one in client.get("/v1/status").json()["sources"]}
    assert sources["nature"]["kind"] == "upload"

    same = upload(client, text, MARKDOWN, "source=nature&path=otter-census")
    assert ended(client, same)["outcome"]["changed"] == 0
    newer = skill("otter-census", "Weigh porcelain before it is glazed twice.")
    ended(client, upload(client, newer, MARKDOWN, "source=nature&path=otter-census"))
    assert "porcelain" in shown(client, "nature:otter-census")["description"]

    gone = client.delete("/v1/skills/nature:otter-census")
    assert ended(client, gone)["state"] == "done"
    assert client.get("/v1/skills?source=nature&state=published").json()["skills"] == []
    assert not UploadReader("nature", Settings(home=served.home)).scan("").signatures
    ended(client, upload(client, newer, MARKDOWN, "source=nature&path=otter-census"))
    assert shown(client, "nature:otter-census")["state"] == "published"


def test_archives_bring_several_skills(client: httpx.Client) -> None:
    files = {
        "repo-main/README.md": b"all",
        "repo-main/a/SKILL.md": skill("a", "Braid a rope."),
        "repo-main/a/scripts/braid.py": b"print()",
        "repo-main/b/SKILL.md": skill("b", "Tan a hide."),
    }
    as_zip = upload(client, zipped(**files), ZIP, "source=by-zip&path=crafts")
    assert as_zip.json()["skills"] == ["by-zip:crafts/a", "by-zip:crafts/b"]
    assert as_zip.json()["left_out"] == 1
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    as_tar = upload(
        client, target.getvalue(), {"Content-Type": "application/gzip"}, "source=by-tar"
    )
    assert as_tar.json()["skills"] == ["by-tar:repo-main/a", "by-tar:repo-main/b"]
    form = client.post(
        "/v1/skills?source=by-form", files={"file": ("x.zip", zipped(**files), "application/zip")}
    )
    for sent in (as_zip, as_tar, form):
        assert ended(client, sent)["outcome"]["changed"] == 2
    assert shown(client, "by-zip:crafts/a")["name"] == "a"


def test_what_is_refused_says_why_and_leaves_nothing(
    served: Skillbus, client: httpx.Client
) -> None:
    good = skill("x", "Something.")
    for content, headers, query, status, why in [
        (good, MARKDOWN, "source=s", 400, "`path`"),
        (good, MARKDOWN, "path=x", 422, "source"),
        (good, MARKDOWN, "source=s&path=../x", 400, "an empty part, . or .."),
        (good, MARKDOWN, "source=..&path=x", 400, "source"),
        (good, MARKDOWN, "source=a:b&path=x", 400, "source"),
        (good, MARKDOWN, "source=crafts&path=x", 400, "is a directory"),
        (good, ZIP, "source=s&path=x", 400, "declared as zip, but it is text"),
        (good, {"Content-Type": "application/json"}, "source=s&path=x", 415, "application/zip"),
        (good, {}, "source=s&path=x", 415, "send one of"),
        (b"", MARKDOWN, "source=s&path=x", 400, "the upload is empty"),
        (zipped(**{"../SKILL.md": good}), ZIP, "source=s", 400, "'../SKILL.md'"),
        (bytes(1_000_001), ZIP, "source=s", 413, "uploads.megabytes"),
        (good, {"Content-Type": "multipart/form-data"}, "source=s", 400, "boundary"),
        (good, {"Content-Type": "multipart/form-data; boundary=x"}, "source=s", 400, "form"),
    ]:
        answer = upload(client, content, headers, query)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert why in answer.json()["detail"]
    bomb = _deflated({"x/SKILL.md": good, "x/zeros": bytes(150_000_000)})
    answer = upload(client, bomb, ZIP, "source=s")
    assert (answer.status_code, "uploads.ratio" in answer.json()["detail"]) == (413, True)
    assert "s" not in {one["source_id"] for one in client.get("/v1/status").json()["sources"]}
    assert not list((served.home / "uploads" / "staging").iterdir())


def _deflated(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def test_a_body_without_a_length_is_bounded_too(client: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield bytes(100_000)

    answer = client.post("/v1/skills?source=s", content=endless(), headers=ZIP)
    assert answer.status_code == 413


def test_uploads_of_one_skill_at_once_end_in_one_of_them_whole(
    served: Skillbus, client: httpx.Client
) -> None:
    versions = {
        str(number): zipped(
            **{
                "race/SKILL.md": skill("race", f"Version {number}."),
                "race/data.txt": str(number).encode() * 10_000,
            }
        )
        for number in range(12)
    }
    answers: list[httpx.Response] = []

    def send(content: bytes) -> None:
        with served.client() as own:
            while (answer := upload(own, content, ZIP, "source=races")).status_code == 503:
                time.sleep(0.02)
            answers.append(answer)

    threads = [threading.Thread(target=send, args=(one,)) for one in versions.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ended(client, answer)["state"] for answer in answers] == ["done"] * 12
    number = _whole(served.home, "races", "race")
    assert shown(client, "races:race")["description"] == f"Version {number}."


def _whole(home: Path, source_id: str, path: str) -> str:
    """The version that an uploaded skill is of, after a look at all its files."""
    folder = UploadReader(source_id, Settings(home=home)).read(path)
    number = folder.content.decode().split("Version ")[1].split(".")[0]
    (data,) = [file for file in folder.files if file.path == "data.txt"]
    assert data.sha256 == hashlib.sha256(number.encode() * 10_000).hexdigest()
    return number


# -- by event and by command


def test_an_event_brings_a_skill_with_its_files(client: httpx.Client) -> None:
    content = SkillUpserted(
        skill_id="queue:deep/knots",
        files={
            "SKILL.md": skill("knots", "Tie a bowline.").decode(),
            "notes.md": "Left over right.",
        },
    )
    event = new_event(content, "tests/queue")
    accepted = client.post("/v1/events", json=event.model_dump(mode="json"))
    assert ended(client, accepted)["outcome"]["changed"] == 1
    assert shown(client, "queue:deep/knots")["name"] == "knots"
    taken = SkillUpserted(skill_id="crafts:x", files={"SKILL.md": "# x"})
    accepted = client.post("/v1/events", json=new_event(taken, "t").model_dump(mode="json"))
    assert "already" in ended(client, accepted)["reason"]


def test_the_command_uploads_through_serve_and_alone(
    served: Skillbus, fork_server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "trips.zip").write_bytes(zipped(**{"trips/SKILL.md": skill("trips", "Clean.")}))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(skill("folder", "Fold a paper crane."))
    (tmp_path / "bad.zip").write_bytes(zipped(**{"/SKILL.md": b"x"}))
    for skillbus in (served, Skillbus(fork_server, tmp_path / "home")):
        done = skillbus("upload", str(tmp_path / "trips.zip"), "--source", "mine", "--json")
        assert done.data["skills"] == ["mine:trips"]
        assert done.data["changed"] == 1
        out = skillbus("upload", str(folder), "--source", "mine").out
        assert out == "mine:folder\n1 skill, 1 new or changed\n"
        assert {"mine:trips", "mine:folder"} <= skillbus.skills().keys()
        wrong = skillbus("upload", str(tmp_path / "bad.zip"), "--source", "mine", code=2)
        assert "absolute" in wrong.err
    alone = Skillbus(fork_server, tmp_path / "home")
    alone("upload", str(folder), "--source", "mine", "--path", "other/place")
    assert "mine:other/place" in alone.skills()
    (folder / "SKILL.md").write_bytes(b"")
    failed = alone("upload", str(folder), "--source", "mine", code=4)
    assert "mine:folder" in failed.err
    alone("sources", "remove", "mine")
    assert not alone.skills()
    assert not UploadReader("mine", Settings(home=alone.home)).scan("").signatures


# -- whatever happens in between


# httpcore does not close a Unix socket whose connection is refused.
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")
@pytest.mark.timeout(600)
def test_a_kill_leaves_one_version_whole_and_what_was_acknowledged_arrives(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    chance = random.Random()
    skillbus = Skillbus(fork_server, tmp_path / "home")
    number, acknowledged = 0, -1
    for _ in range(ROUNDS):
        with skillbus.serving() as serve, skillbus.client() as client:
            timer = threading.Timer(chance.uniform(0.0, 0.4), serve.kill)
            while True:
                if number and not timer.ident:  # the first upload of all arrives
                    timer.start()
                body = zipped(
                    **{
                        "race/SKILL.md": skill("race", f"Version {number}."),
                        "race/data.txt": str(number).encode() * 10_000,
                    }
                )
                try:
                    upload(client, body, ZIP, "source=races").raise_for_status()
                except httpx.TransportError:
                    break
                acknowledged = number
                number += 1
            timer.join()
        stored = tmp_path / "home" / "uploads" / "sources"
        for package in stored.glob("races~*/*"):
            folder = read_package(package, LimitSettings().skill_bytes)
            manifest = read_manifest(package)
            assert hashlib.sha256(folder.content).hexdigest() == manifest.skill_file.sha256
    with skillbus.serving(), skillbus.client() as client:

        def settled() -> bool:
            status = client.get("/v1/status").json()
            return not status["open_events"] and not status["skills"]["waiting"]

        wait_for(settled)
        assert acknowledged <= int(_whole(skillbus.home, "races", "race")) <= number
        found = shown(client, "races:race")["description"]
        assert found == f"Version {_whole(skillbus.home, 'races', 'race')}."
