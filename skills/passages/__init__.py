"""Which passages of one skill a query needs.

A section (heading to next heading) is scored, a passage is sent (`scores`); passages are kept while
they are worth what they cost (`stop`). SkillPager's rule and the methods it was compared with are
there too (`baselines`). Pure numpy; term counts come as plain arrays, so that this package knows
nothing of an engine.
"""

from skills.passages.baselines import chunked, everything, greedy_graph, mmr, top_k
from skills.passages.inputs import (
    DEFAULT_WEIGHTS,
    TEXT_LIMIT,
    Floats,
    PageInput,
    PageQuery,
    PagingWeights,
    passage_texts,
    section_texts,
)
from skills.passages.lines import lines_of
from skills.passages.scores import Scores, score_passages
from skills.passages.stop import choose, reaches, worths

__all__ = [
    "DEFAULT_WEIGHTS",
    "TEXT_LIMIT",
    "Floats",
    "PageInput",
    "PageQuery",
    "PagingWeights",
    "Scores",
    "choose",
    "chunked",
    "everything",
    "greedy_graph",
    "lines_of",
    "mmr",
    "passage_texts",
    "reaches",
    "score_passages",
    "section_texts",
    "top_k",
    "worths",
]
