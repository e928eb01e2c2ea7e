"""Which passages of one skill a query needs.

A section (heading to next heading) is scored, a passage is sent (`scores`); passages are kept while
they are worth what they cost (`stop`). SkillPager's rule and the methods it was compared with are
there too (`baselines`). Pure numpy; term counts come as plain arrays, so that this package knows
nothing of an engine.
"""

from skills.passages.embedded_texts import MAX_EMBEDDED_CHARACTERS, passage_texts, section_texts
from skills.passages.inputs import (
    DEFAULT_WEIGHTS,
    Floats,
    PassageInput,
    PassageQuery,
    PassageWeights,
)
from skills.passages.line_ranges import get_line_ranges
from skills.passages.scoring import PassageScores, score_passages
from skills.passages.selection import passage_utilities, required_gaps, select_passages
from skills.passages.selection_baselines import (
    select_all,
    select_by_graph_walk,
    select_mmr,
    select_top_k,
    split_into_chunks,
)

__all__ = [
    "DEFAULT_WEIGHTS",
    "MAX_EMBEDDED_CHARACTERS",
    "Floats",
    "PassageInput",
    "PassageQuery",
    "PassageScores",
    "PassageWeights",
    "get_line_ranges",
    "passage_texts",
    "passage_utilities",
    "required_gaps",
    "score_passages",
    "section_texts",
    "select_all",
    "select_by_graph_walk",
    "select_mmr",
    "select_passages",
    "select_top_k",
    "split_into_chunks",
]
