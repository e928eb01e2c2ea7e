"""One library in both deployments answers alike: the same skills, in nearly the same order; and
what an agent gets of it keeps to its budget."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from config.bundle_settings import PolicySettings
from config.errors import UsageError
from config.server_settings import ServerSettings
from config.settings import Settings
from search.models.load_models import encoder_identity
from skills.bundle.budget_form import BudgetForm
from skills.events import QueryAsked
from skills.token_count import count_tokens
from tasks.policies import Deadline
from tasks.query.pipeline import answer_query
from tasks.services import Services
from tests.bench.fill import copy_graph, copy_index
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.catalog import empty_catalog
from tests.support.samples.real_skills import DATA, ROOT, Collections, needs_collections
from tests.support.servers.elastic import ElasticIndices
from workers.backend.stores import open_graph, open_index, open_services, send_nothing
from workers.evaluation.metrics import routing_metrics
from workers.evaluation.predictions import rank_tasks
from workers.mcp.results import fit_to_budget

EXAMPLES = ROOT / "examples" / "skills"
LIBRARIES = ("examples", pytest.param("gt", marks=needs_collections))
MIN_OVERLAP = 0.9
MAX_TASKS = 10


@dataclass(frozen=True)
class Deployments:
    """The same library twice, with labelled tasks."""

    embedded: Services
    distributed: Services
    tasks: list[dict[str, Any]]


def tasks_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def source_of(name: str, real_skills: Collections) -> tuple[Path, list[dict[str, Any]]]:
    """A library's folder and its tasks."""
    if name == "examples":
        return EXAMPLES, tasks_of(ROOT / "examples" / "tasks.jsonl")
    return real_skills("gt"), tasks_of(DATA / "tasks-dev.jsonl")


@pytest.fixture(scope="module", params=LIBRARIES)
def deployments(
    request: pytest.FixtureRequest,
    real_skills: Collections,
    fork_server: ForkServer,
    elastic_indices: ElasticIndices,
    neo4j_url: str,
    neo4j_password_file: Path | None,
    redis_url: str,
    redis_password_file: Path | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployments]:
    folder = tmp_path_factory.mktemp(request.param)
    root, tasks = source_of(request.param, real_skills)
    Skillbus(fork_server, folder / "home").start(
        "sync", str(root), "--source", request.param, "--until", "searchable"
    ).wait()
    base = elastic_indices.settings()
    servers = ServerSettings(
        **base.model_dump()
        | {"neo4j": neo4j_url, "neo4j_password_file": neo4j_password_file}
        | {"broker": redis_url, "broker_password_file": redis_password_file}
        | {"redis": redis_url, "redis_password_file": redis_password_file}
    )
    local = Settings(home=folder / "home")
    backend = Settings(home=folder / "none", servers=servers)
    model = encoder_identity(local.encoder).model
    with contextlib.ExitStack() as stack:
        empty_catalog(servers)
        copy_index(
            open_index(local, stack, writable=False),
            open_index(backend, stack, writable=True),
            model,
        )
        copy_graph(
            open_graph(local, stack, writable=False), open_graph(backend, stack, writable=True)
        )
        made = Deployments(
            open_services(local, stack, send_nothing, writable=False),
            open_services(backend, stack, send_nothing, writable=False),
            tasks,
        )
        for services in (made.embedded, made.distributed):
            # Loading takes its time on a busy machine, and queries have but theirs.
            services.encoder.get().encode_queries(["warm up"])
        yield made
        empty_catalog(servers)
        elastic_indices.empty()


def ranked(services: Services, tasks: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {one.task_id: one.skill_ids for one in rank_tasks(services, tasks, ())}


def test_both_deployments_answer_alike(deployments: Deployments) -> None:
    tasks = deployments.tasks
    here = ranked(deployments.embedded, tasks)
    there = ranked(deployments.distributed, tasks)
    shares = [len(set(ids[:10]) & set(there[task][:10])) / 10 for task, ids in here.items()]
    assert sum(shares) / len(shares) >= MIN_OVERLAP
    needed = {task["task_id"]: task["gt_skill_ids"] for task in tasks}
    embedded, distributed = routing_metrics(needed, here), routing_metrics(needed, there)
    for name in ("Hit@1", "MRR@10", "FC@10", "R@10"):
        assert distributed[name] >= embedded[name] - 1 / len(tasks), name


def withheld(services: Services, policy: PolicySettings, task: str) -> tuple[Any, ...]:
    """What an answer says of the policy, and how many skills it sends."""
    changed = services.settings.model_copy(update={"policy": policy})
    asked = QueryAsked(task=task, budget=20_000)
    bundle = answer_query(replace(services, settings=changed), Deadline(30), "q", asked).bundle
    sent = [skill.source in policy.sources or skill.licence for skill in bundle.skills]
    return bundle.status, bundle.withheld.kinds, [one.kind for one in bundle.withheld.skills], sent


def test_both_deployments_withhold_alike(deployments: Deployments) -> None:
    task = deployments.tasks[0]["instruction"]
    source = deployments.tasks[0]["gt_skill_ids"][0].partition(":")[0]
    for policy in (
        PolicySettings(),
        PolicySettings(licences=("MIT",)),
        PolicySettings(licences=("unknown", "apache-2.0"), highest_level=0),
        PolicySettings(sources={source: "withhold"}),
        PolicySettings(licences=("none",), sources={source: "send"}),
    ):
        here = withheld(deployments.embedded, policy, task)
        assert withheld(deployments.distributed, policy, task) == here
    refused = withheld(deployments.embedded, PolicySettings(sources={source: "withhold"}), task)
    assert refused[0] == "NO_SKILL_HIT"
    assert set(refused[1]) == {"source"}


@pytest.mark.parametrize("budget", [200, 2_000, 20_000])
def test_what_an_agent_finds_fits_the_budget_in_either_form(
    deployments: Deployments, budget: int
) -> None:
    """`find_skills` of MCP: as text, and as JSON with it; less than 200 its schema refuses."""
    services, held = deployments.embedded, 0
    for task in deployments.tasks[:MAX_TASKS]:
        asked = QueryAsked(
            task=task["instruction"], budget=budget, budget_form=BudgetForm.TOOL_RESULT
        )
        try:
            bundle = answer_query(services, Deadline(30), "q", asked).bundle
            result = fit_to_budget(bundle, budget)
        except UsageError:  # less than the best passage needs
            continue
        held += result.status == "SKILL_HIT"
        assert count_tokens(result.text) <= budget
        assert count_tokens(json.dumps(result.model_dump(), ensure_ascii=False)) <= budget
    assert held or budget < 2_000
