"""What is particular to the catalog on Neo4j: several writers, faults, migrations, cached rows."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from neo4j import Transaction
from neo4j.exceptions import ServiceUnavailable

from config.errors import (
    MisconfiguredError,
    PermanentError,
    SkillbusError,
    TransientError,
    UsageError,
)
from config.server_settings import ServerSettings
from config.settings import DiffusionSettings
from graph.entry_filter import EntryFilter
from graph.links.passage_links import link_passages
from graph.local.store import SqliteSkillGraph
from graph.named_statements import add_conditions
from graph.neo4j import catalog, client, statements
from graph.neo4j.catalog_backup import CatalogBackup, Row
from graph.neo4j.migrations import migrations
from graph.neo4j.rows import ENTRY_CONDITIONS
from graph.neo4j.store import Neo4jSkillGraph
from graph.pagerank import personalised_pagerank
from graph.protocol import SkillGraph
from graph.records import Link, LinkType, Mention, Publication, RevisionScan, Source
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.bench.fill import copy_graph
from tests.support.program.former_version import acting_former, former_migrations
from tests.support.program.fresh_processes import FRESH
from tests.support.program.secrecy import made_up
from tests.support.samples.catalog import (
    catalog_settings,
    empty_catalog,
    forget_layout,
    open_catalog,
    run_cypher,
)
from tests.support.samples.exact_pagerank import exact_pagerank
from tests.support.servers.servers import ServerControls

SKILLS = 12


@pytest.fixture
def settings(neo4j_url: str, neo4j_password_file: Path | None) -> ServerSettings:
    """A server whose catalog is empty."""
    settings = catalog_settings(neo4j_url, neo4j_password_file)
    open_catalog(settings).close()
    empty_catalog(settings)
    return settings


@pytest.fixture
def graph(settings: ServerSettings) -> Iterator[Neo4jSkillGraph]:
    graph = open_catalog(settings)
    yield graph
    graph.close()


@pytest.fixture
def own(servers: ServerControls) -> ServerSettings:
    """A server of the test run's own, which a test may kill and freeze; its catalog is empty."""
    server = servers.neo4j
    settings = catalog_settings(server.url, server.password_file)
    open_catalog(settings).close()
    empty_catalog(settings)
    return settings


def publication(
    name: str, seq: int, *, says: str = "", mentions: tuple[str, ...] = ()
) -> Publication:
    return Publication(
        key=RevisionKey(f"lib:{name}", seq),
        source_id="lib",
        path=name,
        content_hash=f"hash-{seq}",
        name=says or name,
        description=f"What {name} does",
        mentions=tuple(Mention(one, "related", 3, f"see {one}") for one in mentions),
        body_terms={seq: 1.0},
    )


def pointers(graph: SkillGraph) -> dict[str, int]:
    return {skill_id: seq for skill_id, seq in graph.get_changes_since(0).pointers.items() if seq}


def semantic(source: str, target: str, weight: float = 0.5) -> Link:
    ends = (f"lib:{source}", f"lib:{target}")
    return Link(ends[0], *ends, LinkType.SEMANTIC, weight, "alike")


# -- several writers
def test_writers_compete_without_deadlocks(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[str] = []
    retry_seconds = client._retry_seconds

    def recorded(error: Exception, *about: Any) -> float:
        troubles.append(str(error))
        return retry_seconds(error, *about)

    monkeypatch.setattr(client, "_retry_seconds", recorded)
    graphs = [open_catalog(settings) for _ in range(3)]
    start = graphs[0].allocate_sequence(10_000).start
    errors: list[BaseException] = []

    def write(worker: int) -> None:
        dice = random.Random(worker)
        try:
            for turn in range(12):
                names = dice.sample([f"s{n}" for n in range(SKILLS)], 5)
                seq = start + turn * 3 + worker
                batch = [
                    publication(one, seq, says=f"{one} {dice.randrange(3)}", mentions=tuple(names))
                    for one in names
                ]
                graphs[worker].publish(batch)
                graphs[worker].increment_uses([f"lib:{one}" for one in names[::-1]])
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert errors == []
        assert [trouble for trouble in troubles if "eadlock" in trouble] == []
        facts = graphs[0].get_link_features([f"lib:s{n}" for n in range(SKILLS)])
        assert {name: max(one.body_terms) for name, one in facts.items()} == pointers(graphs[0])
    finally:
        for graph in graphs:
            graph.close()


def test_links_are_replaced_while_skills_come_and_go(settings: ServerSettings) -> None:
    """Linking, publishing and removing at once: in the end no link leads to a removed skill."""
    one, two = open_catalog(settings), open_catalog(settings)
    names = [f"s{n}" for n in range(SKILLS)]
    one.publish(
        [publication(name, n) for n, name in enumerate(names, one.allocate_sequence(99).start)]
    )
    errors: list[BaseException] = []

    def churn() -> None:
        dice = random.Random(5)
        try:
            for _ in range(12):
                some = dice.sample(names, 3)
                seq = one.allocate_sequence(2).start
                one.remove([RevisionKey(f"lib:{name}", seq) for name in some])
                one.publish([publication(name, seq + 1) for name in some[:2]])
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=churn)
    thread.start()
    dice = random.Random(6)
    while thread.is_alive():
        links = {
            f"lib:{name}": [semantic(name, other) for other in dice.sample(names, 4)]
            for name in dice.sample(names, 6)
        }
        two.replace_links(links, [])
    thread.join()
    try:
        assert errors == []
        every = two.get_links([f"lib:{name}" for name in names])
        ends = {
            end for links in every.values() for link in links for end in (link.source, link.target)
        }
        assert ends <= pointers(two).keys()
    finally:
        one.close()
        two.close()


def test_a_lost_acknowledgement_is_no_stale_publication(
    graph: Neo4jSkillGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server committed and the answer never came: the second attempt tells what stands."""
    commit, lost = Transaction.commit, [True]

    def commit_and_lose(transaction: Transaction) -> None:
        commit(transaction)
        if lost.pop() if lost else False:
            raise ServiceUnavailable("the connection broke")

    monkeypatch.setattr(Transaction, "commit", commit_and_lose)
    first = publication("a", 1)
    assert graph.publish([first]) == [first.key]
    assert graph.publish([first]) == []
    lost.append(True)
    assert graph.remove([RevisionKey("lib:a", 2)]) == ["lib:a"]
    assert graph.remove([RevisionKey("lib:a", 2)]) == []


def test_a_forked_process_has_connections_of_its_own(graph: Neo4jSkillGraph) -> None:
    graph.allocate_sequence(5)
    child = os.fork()
    if not child:
        os._exit(0 if graph.allocate_sequence(1).start == 6 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert graph.allocate_sequence(1).start == 7


def interrupt_call(settings: ServerSettings, in_transaction: bool) -> None:
    """Interrupt an endless call by a signal; exits with 3, as the handler says, if the client
    still answers then."""

    def leave(signum: int, frame: object) -> None:
        sys.exit(3)

    neo4j_client = client.Neo4jClient(settings)
    neo4j_client.read("RETURN 1")  # connected
    endless = "UNWIND range(1, 1000000000) AS n RETURN n"
    signal.signal(signal.SIGUSR1, leave)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        if in_transaction:
            neo4j_client.run_transaction(lambda run, _: run(endless))
        else:
            neo4j_client.read(endless)
    finally:
        assert neo4j_client.read("RETURN 1") == [[1]]
        neo4j_client.close()


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_interrupt_ends_a_call_as_itself(settings: ServerSettings, in_transaction: bool) -> None:
    """Celery ends a worker process by a signal whose handler raises SystemExit in any call."""
    child = FRESH.Process(target=interrupt_call, args=(settings, in_transaction))
    child.start()
    child.join(200)
    child.kill()
    child.join()
    assert child.exitcode == 3


# -- migrations
def test_several_openers_lay_the_database_out_once(settings: ServerSettings) -> None:
    forget_layout(settings)
    errors: list[SkillbusError] = []

    def open_once() -> None:
        try:
            open_catalog(settings).close()
        except SkillbusError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    graph = open_catalog(settings)
    assert graph.health()["schema"] == max(migrations())
    graph.publish([publication("a", 1)])
    assert pointers(graph) == {"lib:a": 1}
    graph.close()


def test_another_schema_is_refused_with_what_to_do(settings: ServerSettings) -> None:
    newest = max(migrations())
    for version, said in (
        (newest + 1, "upgrade skillbus"),
        (1, "start a worker"),
        (0, "no library"),
    ):
        run_cypher(settings, f"MATCH (m:Meta {{key: 'schema'}}) SET m.value = {version}")
        reader = Neo4jSkillGraph(settings, writable=False)
        with pytest.raises(MisconfiguredError, match=said):
            reader.get_entries()
        if version > newest:
            with pytest.raises(MisconfiguredError, match=said):
                open_catalog(settings)
        else:
            open_catalog(settings).close()
            assert reader.get_entries() == []
        reader.close()
    run_cypher(settings, f"MATCH (m:Meta {{key: 'schema'}}) SET m.value = {newest}")


def test_sources_of_the_second_schema_are_brought_up(settings: ServerSettings) -> None:
    run_cypher(
        settings,
        "CREATE (:Source {source_id: 'team', kind: 'directory', root: '/skills', "
        "last_success: 5.0})",
        "MATCH (m:Meta {key: 'schema'}) SET m.value = 2",
    )
    graph = open_catalog(settings)
    assert graph.list_sources() == [Source("team", "directory", "/skills", 5.0)]
    graph.close()


def test_a_writer_of_the_former_version_is_noticed(
    settings: ServerSettings, graph: Neo4jSkillGraph
) -> None:
    """It knows nothing of rules, scripts and parsers, and leaves those of what it replaces."""

    def rule_nodes() -> list[list[object]]:
        return run_cypher(settings, "MATCH (f:FindingRule) RETURN f.skill_id, f.seq ORDER BY f.seq")

    def publish(name: str, seq: int, **more: Any) -> None:
        known = {"safety_level": 2, "scanner_version": 7, **more}
        graph.publish([replace(publication(name, seq), **known)])

    of_rule = EntryFilter(above_level=0, rule="r")
    for seq, name in enumerate("abcd", 1):
        publish(name, seq, has_scripts=True, rules=("r",), parser_version=1)
    assert graph.count_parsed_before(1) == 0
    with acting_former():
        publish("b", 12)
        graph.remove([RevisionKey("lib:c", 13)])
        graph.remove([RevisionKey("lib:d", 14)])
        publish("d", 15)
        publish("e", 16)
    assert [one.skill_id for one in graph.list_entries(of_rule, "", 9)] == ["lib:a"]
    scripts = {one.skill_id: one.has_scripts for one in graph.get_entries()}
    assert scripts == {"lib:a": True} | {f"lib:{name}": None for name in "bcde"}
    outdated = graph.list_scanned_before(7, 9)
    assert graph.list_parsed_before(1, 9) == outdated
    assert outdated == [RevisionKey("lib:b", 12), *map(RevisionKey, ("lib:d", "lib:e"), (15, 16))]
    assert rule_nodes() == [[f"lib:{name}", seq] for seq, name in enumerate("abcd", 1)]

    graph.save_scans(dict.fromkeys(outdated, RevisionScan(3, ("r",), False)), 7)
    found = {one.skill_id: one.has_scripts for one in graph.list_entries(of_rule, "", 9)}
    assert found == {"lib:a": True, "lib:b": False, "lib:d": False, "lib:e": False}
    publish("c", 17, has_scripts=False, rules=())
    assert rule_nodes() == [["lib:a", 1], ["lib:b", 12], ["lib:d", 15], ["lib:e", 16]]


def test_a_catalog_of_the_former_version_is_brought_up(settings: ServerSettings) -> None:
    run_cypher(
        settings,
        "DROP CONSTRAINT finding_rule IF EXISTS",
        "DROP INDEX finding_rule_skill IF EXISTS",
        "MATCH (m:Meta {key: 'rules_version'}) DELETE m",
        f"MATCH (m:Meta {{key: 'schema'}}) SET m.value = {max(former_migrations())}",
    )
    with acting_former():
        former = open_catalog(settings)
        former.publish([replace(publication("a", 1), scanner_version=7)])
        former.close()
    graph = open_catalog(settings)
    assert graph.get_rules_version() == 0
    assert graph.get_entries()[0].has_scripts is None
    assert graph.list_scanned_before(7, 9) == [RevisionKey("lib:a", 1)]
    graph.save_scans({RevisionKey("lib:a", 1): RevisionScan(1, ("r",), True)}, 7)
    assert graph.list_entries(EntryFilter(above_level=0, rule="r"), "", 9)[0].has_scripts
    graph.close()


def test_a_reader_may_not_write(settings: ServerSettings) -> None:
    reader = open_catalog(settings, writable=False)
    with pytest.raises(UsageError, match="reading only"):
        reader.publish([publication("a", 1)])
    reader.close()
    with pytest.raises(UsageError, match="has been closed"):
        reader.get_entries()


def test_an_older_copy_of_the_catalog_is_noticed(graph: Neo4jSkillGraph) -> None:
    graph.publish([publication("a", 1)])
    epoch = graph.get_changes_since(0).epoch
    with pytest.raises(UsageError, match="older copy was restored"):
        graph.get_changes_since(epoch + 1)


# -- backup
def test_links_of_alternating_types_are_restored_in_whole_batches(
    settings: ServerSettings, graph: Neo4jSkillGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{n:02}" for n in range(SKILLS)]
    graph.publish([publication(name, n) for n, name in enumerate(names, 1)])
    kinds = itertools.cycle([LinkType.SEMANTIC, LinkType.WORKFLOW])
    links = {
        f"lib:{one}": [replace(semantic(one, other), type=next(kinds)) for other in names[:5]]
        for one in names[5:]
    }
    graph.replace_links(links, [])
    rows: list[Row] = []
    with closing(CatalogBackup(settings)) as backup:
        backup.read(rows.extend)
        empty_catalog(settings)
        written: list[tuple[str, ...]] = []
        write_batch = CatalogBackup._write_batch

        def counted(self: CatalogBackup, labels: tuple[str, ...], batch: list[Any]) -> None:
            written.append(labels)
            write_batch(self, labels, batch)

        monkeypatch.setattr(CatalogBackup, "_write_batch", counted)
        backup.write(rows)
    restored = graph.get_owned_links(list(links))
    assert {owner: set(owned) for owner, owned in restored.items()} == {
        owner: set(owned) for owner, owned in links.items()
    }
    relations = [labels for labels in written if len(labels) == 3]
    assert sorted(relations) == [("Skill", kind, "Skill") for kind in ("SEMANTIC", "WORKFLOW")]


# -- names and rows
def test_a_statement_that_the_server_refuses(graph: Neo4jSkillGraph) -> None:
    with pytest.raises(PermanentError, match=r"refused a statement .*ArgumentError") as caught:
        graph.list_entries(EntryFilter(), "", -1)
    assert "bolt://" not in caught.value.public_message


def test_a_name_longer_than_an_index_key(graph: Neo4jSkillGraph) -> None:
    long = "x" * 20_000
    graph.publish([publication("a", 1, says=long), publication("b", 2, mentions=(long,))])
    assert graph.find_by_name("lib", [long]) == {long: ["lib:a"]}
    graph.replace_links({}, graph.list_awaiting_linking(9))
    graph.remove([RevisionKey("lib:a", 3)])
    assert [skill_id for skill_id, _ in graph.list_awaiting_linking(9)] == ["lib:b"]


def test_rows_are_kept_until_the_feed_names_them(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = open_catalog(settings, writable=False), open_catalog(settings)
    names = [f"s{n}" for n in range(4)]
    writer.publish([publication(name, n) for n, name in enumerate(names, 1)])
    writer.replace_links({"lib:s0": [semantic("s0", "s1")]}, [])
    asked: list[object] = []
    read = Neo4jSkillGraph._read

    def counted(self: Neo4jSkillGraph, name: str, **parameters: object) -> object:
        if name == "adjacency":
            asked.append(parameters["ids"])
        return read(self, name, **parameters)

    monkeypatch.setattr(Neo4jSkillGraph, "_read", counted)
    ids = [f"lib:{name}" for name in names]
    epoch = reader.get_changes_since(0).epoch
    before = reader.get_adjacency(ids, 8)
    assert reader.get_adjacency(ids, 8) == before
    assert asked == [ids]
    writer.replace_links({"lib:s0": [semantic("s0", "s2")]}, [])
    epoch = reader.get_changes_since(epoch).epoch
    after = reader.get_adjacency(ids, 8)
    assert [one.skill_id for one in after["lib:s0"].neighbours] == ["lib:s2"]
    assert after["lib:s3"] == before["lib:s3"]
    assert asked[1:] == [["lib:s0", "lib:s1", "lib:s2"]]
    writer.remove([RevisionKey("lib:s2", 9)])
    reader.get_changes_since(epoch)
    assert reader.get_adjacency(["lib:s0"], 8)["lib:s0"].neighbours == ()
    for one in (reader, writer):
        one.close()


def test_diffusion_over_cypher_is_the_embedded_one(graph: Neo4jSkillGraph, tmp_path: Path) -> None:
    embedded = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    dice = random.Random(3)
    names = [f"s{n:03}" for n in range(150)]
    embedded.publish([publication(name, n) for n, name in enumerate(names, 1)])
    kinds = list(LinkType)
    links = {
        f"lib:{name}": [
            Link(
                f"lib:{name}", f"lib:{name}", f"lib:{other}", dice.choice(kinds), dice.random(), "x"
            )
            for other in dice.sample(names, 8)
            if other != name
        ]
        for name in names
    }
    embedded.replace_links(links, embedded.list_awaiting_linking(1000))
    copy_graph(embedded, graph)
    assert graph.get_owned_links(list(links)).keys() == links.keys()
    assert {k: set(v) for k, v in graph.get_owned_links(list(links)).items()} == {
        k: set(v) for k, v in embedded.get_owned_links(list(links)).items()
    }
    ids = list(links)
    for fan_out in (5, 1000):
        near, far = embedded.get_adjacency(ids, fan_out), graph.get_adjacency(ids, fan_out)
        assert {k: row.neighbours for k, row in far.items()} == {
            k: row.neighbours for k, row in near.items()
        }
        seeds = {skill_id: dice.random() for skill_id in ids[:4]}
        asked = DiffusionSettings()
        here = personalised_pagerank(
            seeds,
            lambda some: embedded.get_adjacency(some, fan_out),  # noqa: B023 - called at once
            asked,
        )
        there = personalised_pagerank(seeds, lambda some: graph.get_adjacency(some, fan_out), asked)  # noqa: B023 - called at once
        assert there.scores == pytest.approx(here.scores, abs=1e-12)
        assert (there.hops, there.nodes_read) == (here.hops, here.nodes_read)
        true = exact_pagerank(seeds, embedded.get_adjacency(ids, 1000), asked)
        off = sum(abs(true.get(one, 0.0) - there.scores.get(one, 0.0)) for one in true)
        assert off <= there.residual_bound + 1e-9
    embedded.close()


def test_long_answers_come_in_pages(
    graph: Neo4jSkillGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (catalog, statements):
        monkeypatch.setattr(module, "READ_BATCH", 3)
    names = ["a", "a/b", "a/b/c", "a/d", "a-b", "b", "c", "d"]
    graph.publish([publication(name, n) for n, name in enumerate(names, 1)])
    graph.update_file_signatures("lib", dict.fromkeys(names, "seen"), [])
    ids = sorted(f"lib:{name}" for name in names)
    assert [entry.skill_id for entry in graph.get_entries()] == ids
    assert [entry.skill_id for entry in graph.get_entries(ids[::-1])] == ids
    assert [entry.skill_id for entry in graph.get_entries_under("lib", "")] == ids
    assert [entry.path for entry in graph.get_entries_under("lib", "a")] == [
        "a",
        "a/b",
        "a/b/c",
        "a/d",
    ]
    assert graph.get_file_signatures("lib") == dict.fromkeys(names, "seen")
    assert sorted(graph.get_changes_since(0).pointers) == ids
    graph.delete_source("other")


def test_a_page_with_skills_that_never_changed_is_not_the_last(
    graph: Neo4jSkillGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skills that wait for their first ingest are in the pages, but not among the changes."""
    for module in (catalog, statements):
        monkeypatch.setattr(module, "READ_BATCH", 3)
    graph.request_ingest([(f"lib:{name}", "lib", name) for name in ("a", "c", "d", "e")], 1)
    graph.publish([publication("b", 2), publication("f", 3)])
    assert graph.get_changes_since(0).pointers == {"lib:b": 2, "lib:f": 3}


@pytest.mark.parametrize("sampled_at", ["emptied", "grown"])
def test_no_plan_of_a_small_library_walks_the_database_or_a_whole_index_of_skills(
    settings: ServerSettings, sampled_at: str
) -> None:
    """In a small library such a plan costs the same, and it is kept while the library grows: most
    plans are never made again.

    The server samples its indexes now and then, so the planner may know them as they were.
    """
    library = [publication(name, n) for n, name in enumerate("abcdefghijklmn", 1)]
    graph = open_catalog(settings)
    graph.publish(library)
    if sampled_at == "emptied":
        sample_indexes(graph)
        graph.close()
        empty_catalog(settings)
        graph = open_catalog(settings)
    sample_indexes(graph)
    if sampled_at == "emptied":
        graph.publish(library)
    graph.get_changes_since(0)
    plans = explain(graph)
    walks = ("AllNodesScan", "NodeByLabelScan", "AllRelationshipsScan", "RelationshipTypeScan")
    found = {name for name, plan in plans.items() if any(walk in plan for walk in walks)}
    assert found == {"source_access", "dismissed_links"}  # few, and read as a whole
    found = {name for name, plan in plans.items() if "IndexScan" in plan}
    # The others read the few entries of an index of open work, or the whole library.
    open_work = {"awaiting_ingest", "awaiting_vectors", "awaiting_embedding", "awaiting_linking"}
    assert found == open_work | {"count_rest", "count_entries", "source_access"}
    graph.close()


def sample_indexes(graph: Neo4jSkillGraph) -> None:
    """Have the server sample its indexes, and wait until it has."""
    (driver, _) = graph._server._connected()
    with driver.session() as session:
        session.run("CALL db.prepareForReplanning(60)").consume()


def explain(graph: Neo4jSkillGraph) -> dict[str, str]:
    """The operators of the plans of each statement, without and with conditions, made now."""
    (driver, _) = graph._server._connected()
    plans: dict[str, str] = {}
    with driver.session() as session:
        session.run("CALL db.clearQueryCaches()").consume()
        for name, text in graph._statements.items():
            for statement in {add_conditions(text, chosen) for chosen in _CONDITIONS}:
                values = {one: _VALUES.get(one, 1) for one in re.findall(r"\$(\w+)", statement)}
                explained = f"EXPLAIN {statement.removeprefix('CYPHER replan=skip')}"
                plan = operators(session.run(explained, values).consume().plan)
                plans[name] = f"{plans.get(name, '')} {plan}"
    return plans


_CONDITIONS = ((), tuple(ENTRY_CONDITIONS.values()))
_LISTS = ("ids", "rows", "keys", "names", "paths", "states", "source_ids", "groups")
_TEXTS = ("after", "below", "end", "kind", "name_key", "path", "root", "skill_id", "source_id")
_VALUES: dict[str, object] = {key: [] for key in _LISTS} | dict.fromkeys(_TEXTS, "")
_VALUES |= {"blank": {}, "known": {}}


def operators(plan: dict[str, Any] | None) -> str:
    """The names of a plan's operators."""
    if plan is None:
        return ""
    below = [operators(one) for one in plan.get("children", ())]
    return " ".join([plan["operatorType"], *below])


# -- passages
def test_passages_are_projected_replaced_and_removed(settings: ServerSettings) -> None:
    graph = open_catalog(settings.model_copy(update={"neo4j_passages": True}))
    text = b"---\nname: a\ndescription: b\n---\n# A\n\nInstall it first.\n\n1. Run it.\n2. Look.\n"
    parsed = parse_skill("a", text)
    links = link_passages(parsed)
    count = "MATCH (p:Passage) OPTIONAL MATCH (p)-[r]->() RETURN count(DISTINCT p), count(r)"
    graph.publish([publication("a", 1)])
    before = graph.get_changes_since(0), graph.get_counts(), graph.get_adjacency(["lib:a"], 5)
    assert not graph.project_passages(RevisionKey("lib:a", 2), parsed, links)
    for _ in range(2):
        assert graph.project_passages(RevisionKey("lib:a", 1), parsed, links)
        assert run_cypher(settings, count) == [[len(parsed.passages), len(links)]]
    assert (
        graph.get_changes_since(0),
        graph.get_counts(),
        graph.get_adjacency(["lib:a"], 5),
    ) == before
    graph.publish([publication("a", 2)])
    assert graph.project_passages(RevisionKey("lib:a", 2), parsed, [])
    assert run_cypher(settings, count) == [[len(parsed.passages), 0]]
    graph.remove([RevisionKey("lib:a", 3)])
    assert run_cypher(settings, count) == [[0, 0]]
    assert graph.prune_removed(-1) == ["lib:a"]
    graph.close()


# -- faults
def test_an_address_without_a_listener() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"bolt://127.0.0.1:{taken.getsockname()[1]}"
        graph = Neo4jSkillGraph(catalog_settings(url, timeout_seconds=1.0))
        with pytest.raises(TransientError, match=url):
            graph.get_entries()
        health = graph.health()
        graph.close()
    assert (health["reachable"], url in health["problem"]) == (False, True)


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    for address, password_file, said in (
        ("http//:nonsense", None, "servers.neo4j: "),
        ("bolt://127.0.0.1:1", tmp_path / "absent", "servers.neo4j_password_file"),
    ):
        graph = Neo4jSkillGraph(catalog_settings(address, password_file))
        with pytest.raises(MisconfiguredError, match=said):
            graph.get_entries()
        graph.close()


@pytest.mark.slow
def test_wrong_login_and_database(own: ServerSettings, tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text(made_up("and-wrong") + "\n")
    for changed, said in (
        ({"neo4j_password_file": wrong}, "servers.neo4j_password_file"),
        ({"neo4j_password_file": None}, "servers.neo4j_password_file"),
        ({"neo4j_database": "elsewhere"}, "servers.neo4j_database"),
    ):
        graph = Neo4jSkillGraph(own.model_copy(update=changed))
        with pytest.raises(MisconfiguredError, match=said) as caught:
            graph.get_entries()
        assert made_up("and-wrong") not in str(caught.value)
        graph.close()


@pytest.mark.slow
def test_calls_to_a_frozen_server_end(
    own: ServerSettings, servers: ServerControls, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, fresh = open_catalog(own), Neo4jSkillGraph(own)
    used.publish([publication("a", 1)])
    servers.neo4j.freeze()
    with monkeypatch.context() as impatient:
        for each in (used, fresh):
            impatient.setattr(each._server, "_timeout_seconds", 1.0)
        for each in (used, fresh, used):
            started = time.monotonic()
            with pytest.raises(TransientError, match="bolt://"):
                each.publish([publication("b", 2)])
            assert time.monotonic() - started < 100  # the driver alone waits 120 s
    servers.neo4j.thaw()
    for each in (used, fresh):
        assert "lib:a" in pointers(each)
        each.close()
