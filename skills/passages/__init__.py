"""Selects the passages of a skill that a query needs.

`scoring` scores sections and passages for a query (method F). `features` and `model` estimate each
passage's need from the scores. `selection` keeps enough passages, and `line_ranges` converts them
to lines. `selection_baselines` has SkillPager's MMR and the methods that it was compared with.
`embedded_texts` has the texts whose vectors the scores use. Everything is numpy; term counts are
plain arrays, independent of a search engine.
"""

from skills.passages.embedded_texts import MAX_EMBEDDED_CHARACTERS, passage_texts, section_texts
from skills.passages.inputs import (
    DEFAULT_WEIGHTS,
    Floats,
    PassageInput,
    PassageQuery,
    PassageWeights,
)
from skills.passages.line_ranges import OpenFences, get_line_ranges
from skills.passages.scoring import PassageScores, score_passages
from skills.passages.selection import (
    PassageNeeds,
    compute_margins,
    estimate_needs,
    find_short_lists,
)
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
    "OpenFences",
    "PassageInput",
    "PassageNeeds",
    "PassageQuery",
    "PassageScores",
    "PassageWeights",
    "compute_margins",
    "estimate_needs",
    "find_short_lists",
    "get_line_ranges",
    "passage_texts",
    "score_passages",
    "section_texts",
    "select_all",
    "select_by_graph_walk",
    "select_mmr",
    "select_top_k",
    "split_into_chunks",
]
