"""Measures whether `select` sees that one skill of a set does not belong there.

    python -m tests.bench.replay_compatibility export --home HOME --tasks tasks.jsonl --out FILE
    python -m tests.bench.replay_compatibility measure --home HOME --tasks tasks.jsonl \\
        --answers FILE [--out rows.jsonl]

The cases are those of `set_compatibility` whose task needs at least two skills. Each is asked in
two forms: `candidates`, the set with one skill exchanged, and `with_both`, the same set with the
skill that was exchanged. `export` writes the prompts of the query stage for exactly these
candidates; `measure` has the stage run again on recorded answers, over HTTP, in a home that holds
the same library.

A clash is seen if the replacement is not among the skills that are needed, or is in a pair that
must not go together. In a copy nothing clashes; copies are counted apart. A model that needs one
skill of each set sees most clashes, so `seen` counts only next to `alarms`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from config.language_model_settings import LanguageModelSettings
from graph.records import LinkFeatures
from graph.skill_names import normalise_name
from search.text.query_understanding import understand
from skills.events import QueryAsked
from skills.record import RevisionKey
from skills.token_count import count_tokens
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.policies import Deadline
from tasks.query.context import QueryContext
from tasks.query.language_model.select_skills import select_skills
from tasks.query.ranking import RankedSkill, Ranking, Selection
from tasks.services import Lazy, Services
from tests.bench.recorded_queries import PromptCollector, open_services
from tests.bench.set_compatibility import ExchangeCase, Judgement, generate_cases, is_clash_seen
from tests.support.program.recorded import Prompt, RecordedAnswers, get_prompt_key, write_prompts
from tests.support.servers.language_model import LanguageModelServer
from workers.evaluation.predictions import read_jsonl

COPY_COSINE = 0.65
"""From here on, an alternative has nearly the description of the skill that it replaces."""

_SECONDS = 600.0

Form = Literal["candidates", "with_both"]
FORMS: tuple[Form, ...] = ("candidates", "with_both")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said about a case.

    seen: the clash, as above. left_out: more than that: the replacement is not even useful.
    preferred: the skill that was exchanged is needed, which only `with_both` can show. alarms:
    share of the given skills that belong there, but are not among the needed ones. kept: share of
    them that are needed or useful. answered: False without a usable answer, where nothing is seen.
    """

    answered: bool
    seen: bool = False
    left_out: bool = False
    preferred: bool = False
    alarms: float = 0.0
    kept: float = 0.0


def choose_cases(
    tasks: Iterable[Mapping[str, object]], library: Mapping[str, LinkFeatures]
) -> list[ExchangeCase]:
    """The cases of the tasks that need at least two skills of the library."""
    return [case for case in generate_cases(tasks, library) if len(case.candidates) > 1]


def get_kind(case: ExchangeCase, library: Mapping[str, LinkFeatures]) -> str:
    """`copy` for an alternative of the same name or nearly the same description, else the kind."""
    names = {normalise_name(library[one].name) for one in (case.exchanged, case.replacement)}
    is_copy = len(names) == 1 or case.cosine >= COPY_COSINE
    return "copy" if case.kind == "alternative" and is_copy else case.kind


def judge(case: ExchangeCase, form: Form, ranking: Ranking) -> Outcome:
    """What the stage said about a case in one of its forms."""
    selection = ranking.selection
    if selection is None:
        return Outcome(answered=False)
    given: tuple[str, ...] = getattr(case, form)
    needed, useful = set(selection.needed), set(selection.useful)
    conflicts = frozenset(ranking.conflicts)
    others = [one for one in given if one != case.replacement]
    return Outcome(
        answered=True,
        seen=is_clash_seen(case, Judgement(frozenset(given) - needed, conflicts)),
        left_out=is_clash_seen(case, Judgement(frozenset(given) - needed - useful, conflicts)),
        preferred=case.exchanged in needed and case.replacement not in needed,
        alarms=sum(one not in needed for one in others) / len(others),
        kept=sum(one in needed | useful for one in others) / len(others),
    )


def select_from(services: Services, task: str, skill_ids: Sequence[str]) -> Ranking:
    """The ranking of exactly these skills after `select`."""
    pointers = services.library.refresh().pointers
    hits = tuple(
        RankedSkill(RevisionKey(skill_id, pointers[skill_id]), 1.0, {}, ())
        for skill_id in skill_ids
    )
    # The floor is about the library's evidence for the task, which these hits do not have.
    request = QueryAsked(task=task, without=("floor",))
    context = QueryContext.create(services, request, Deadline(_SECONDS), degrade=False)
    return select_skills(context, Ranking(understand(task), None, hits))


def read_library(services: Services) -> dict[str, LinkFeatures]:
    """What the cases are made of, of all published skills."""
    return services.graph.get_link_features(list(services.library.refresh().pointers))


def collect_prompts(
    home: Path, tasks: Sequence[Mapping[str, Any]]
) -> tuple[list[Prompt], dict[str, int]]:
    """The prompts of all cases in both forms, and the number of cases of each kind."""
    collector = PromptCollector(RecordedAnswers({}))
    settings = LanguageModelSettings(base_url="http://127.0.0.1:1/v1", model="none")
    kinds: dict[str, int] = defaultdict(int)
    with open_services(home, settings) as services:
        library = read_library(services)
        asking = _with_model(services, lambda: collector)
        for case in choose_cases(tasks, library):
            kinds[get_kind(case, library)] += 1
            for form in FORMS:
                select_from(asking, case.task, getattr(case, form))
    # In the order of the cases, neighbours would tell which skill was exchanged.
    prompts = sorted(collector.prompts, key=_key)
    return prompts, dict(kinds)


def measure(
    home: Path, tasks: Sequence[Mapping[str, Any]], answers: RecordedAnswers
) -> list[dict[str, Any]]:
    """A row for each case and form: its kind, the skills, and what was said about it."""
    rows = []
    with LanguageModelServer(answers) as server:
        settings = server.settings(query_milliseconds=60_000)
        with (
            open_services(home, settings) as services,
            closing(OpenAILanguageModel(settings)) as model,
        ):
            library = read_library(services)
            asking = _with_model(services, lambda: model)
            for case in choose_cases(tasks, library):
                for form in FORMS:
                    ranking = select_from(asking, case.task, getattr(case, form))
                    rows.append(_make_row(case, form, get_kind(case, library), ranking))
    return rows


def _make_row(case: ExchangeCase, form: Form, kind: str, ranking: Ranking) -> dict[str, Any]:
    outcome = judge(case, form, ranking)
    selection = ranking.selection or Selection((), {}, (), {}, complete=False)
    return {
        "task_id": case.task_id,
        "form": form,
        "kind": kind,
        "exchanged": case.exchanged,
        "replacement": case.replacement,
        "cosine": case.cosine,
        "answered": outcome.answered,
        "seen": outcome.seen,
        "left out": outcome.left_out,
        "preferred": outcome.preferred,
        "alarms": outcome.alarms,
        "kept": outcome.kept,
        "needed": selection.needed,
        "why not": selection.rejected.get(case.replacement, ""),
    }


def summarise(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The shares by form and kind, `all` being all but the copies."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[f"{row['form']} {row['kind']}"].append(row)
        if row["kind"] != "copy":
            groups[f"{row['form']} all"].append(row)
    names = ("answered", "seen", "left out", "preferred", "alarms", "kept")
    return {
        group: {"cases": len(found)}
        | {name: round(sum(row[name] for row in found) / len(found), 4) for name in names}
        for group, found in sorted(groups.items())
    }


def _key(prompt: Prompt) -> str:
    return get_prompt_key(prompt.request.instructions, prompt.request.data)


def _with_model(services: Services, make: Callable[[], Any]) -> Services:
    """The services with this model alone: nothing is kept of what it says."""
    return replace(services, language_model=Lazy(make), answers=None, skill_pairs=None)


def _count(prompts: Sequence[Prompt]) -> dict[str, int]:
    tokens = [count_tokens(one.request.instructions + one.request.data) for one in prompts]
    return {"tokens": sum(tokens), "most tokens": max(tokens, default=0)}


def main() -> None:
    """Run a subcommand; print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["export", "measure"])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--answers", type=Path, nargs="+", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    tasks = read_jsonl(given.tasks, ("task_id", "instruction", "gt_skill_ids"))
    if given.what == "export":
        prompts, kinds = collect_prompts(given.home, tasks)
        written = write_prompts(given.out, prompts) if given.out else len(prompts)
        print(json.dumps({"cases": kinds, "prompts": written} | _count(prompts)))
        return
    answers = RecordedAnswers.read(*given.answers)
    rows = measure(given.home, tasks, answers)
    if given.out:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        given.out.write_text("".join(lines), encoding="utf-8")
    print(json.dumps({"not recorded": len(answers.unknown)} | summarise(rows), indent=2))


if __name__ == "__main__":
    main()
