"""Token counts of a bundle: of its Markdown, or of the tool result that holds the Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from skills.bundle.markdown import (
    READ_IN_FILE,
    READ_WITH_TOOL,
    render_header,
    render_left_out_passages,
    render_passage,
    render_skill,
    render_without_skills,
)
from skills.bundle.model import Bundle, BundlePassage, BundleSkill
from skills.skill_uri import SKILL_FILE, is_skill_name, make_file_uri, make_skill_uri
from skills.token_count import count_tokens


class BudgetForm(StrEnum):
    """The text whose tokens the budget of a query counts.

    TOOL_RESULT: the JSON object that the MCP tool `find_skills` returns. Escapes make it longer
    than the Markdown: 1.1 to 1.3 times for prose, 1.6 times for some code.
    """

    MARKDOWN = "markdown"
    TOOL_RESULT = "tool_result"

    def count_skill(self, number: int, skill: BundleSkill) -> int:
        """Return the tokens of the `number`-th skill of a bundle, counted from 1."""
        if self is BudgetForm.MARKDOWN:
            around = "\n".join([render_header(number, skill), *render_left_out_passages(skill)])
            return count_tokens(around) + sum(map(_count_passage, skill.passages))
        text = render_skill(number, skill)
        # The URI of a skill that is served whole, whose name is that of its record.
        uri = make_file_uri(make_skill_uri(skill.skill_id, skill.name), SKILL_FILE)
        fields = {
            "skill_id": skill.skill_id,
            "safety_level": skill.safety.level,
            "uri": uri if is_skill_name(skill.name) else "",
            "text": text,
        }
        return count_tokens(_to_json(fields))

    def count_rest(self, bundle: Bundle) -> int:
        """Return the tokens of a bundle without its skills.

        The counts of the skills and of the rest add up to the count of the Markdown, and to at
        least that of the tool result, where each skill is counted with a field name and quotes for
        its text.
        """
        is_markdown = self is BudgetForm.MARKDOWN
        read_more = READ_IN_FILE if is_markdown else READ_WITH_TOOL
        text = render_without_skills(bundle, read_more)
        if is_markdown:
            return count_tokens(text)
        # The next query has an id of another number of tokens: all count as the longest.
        query_id = ("0a" * len(bundle.query_id))[: len(bundle.query_id)]
        fields = {"query_id": query_id, "status": bundle.status, "skills": [], "text": text}
        return count_tokens(_to_json(fields))


# A query tries bundles with more or fewer passages; most passages are in several of them.
@lru_cache(maxsize=1 << 12)
def _count_passage(passage: BundlePassage) -> int:
    return count_tokens(render_passage(passage))


def _to_json(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def with_markdown_tokens(bundle: Bundle) -> Bundle:
    """Return the bundle with the `tokens` of bundle and skills counted in the Markdown form."""
    form = BudgetForm.MARKDOWN
    skills = tuple(
        skill.model_copy(update={"tokens": form.count_skill(number, skill)})
        for number, skill in enumerate(bundle.skills, 1)
    )
    tokens = form.count_rest(bundle) + sum(skill.tokens for skill in skills)
    return bundle.model_copy(update={"skills": skills, "tokens": tokens})
