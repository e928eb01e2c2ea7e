"""Documents of made-up skills with vectors of the tiny encoder, as an index takes them."""

from __future__ import annotations

from search.protocol import Filters, SkillDocument
from search.skill_analysis import analyse_skill, section_text_hashes, skill_texts
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.support.samples.tiny import TinyEncoder

ENCODER = TinyEncoder()


def tiny_document(name: str, body: str = "Do it.", seq: int = 1) -> SkillDocument:
    """A skill of two sections, the second of which every skill has."""
    text = f"---\nname: {name}\ndescription: Helps with {name}\n---\n# {name}\n\n{body}\n\n"
    parsed = parse_skill(name, (text + "## Care\n\nOil it.\n").encode())
    analysis = analyse_skill(parsed)
    return SkillDocument(
        key=RevisionKey(f"home:{name}", seq),
        content_hash=f"{name} {seq}",
        parsed=parsed,
        fields=analysis.fields,
        forward=analysis.forward,
        passage_terms=analysis.passage_terms,
        vectors=ENCODER.encode_texts(skill_texts(parsed)),
        section_hashes=section_text_hashes(ENCODER.model, parsed),
        filters=Filters(source=("home",), language=("en",)),
    )
