"""Documents of made-up skills, as an index takes them."""

from __future__ import annotations

from search.protocol import Filters, SkillDocument, Vector
from search.skill_analysis import analyse_skill, section_text_hashes, skill_texts
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, RevisionKey
from tests.support.samples.tiny import TinyEncoder

ENCODER = TinyEncoder()
ANY = Filters()


def make_document(
    key: RevisionKey,
    parsed: ParsedSkill,
    *,
    content_hash: str = "hash",
    vectors: Vector | None = None,
    section_hashes: tuple[bytes, ...] = (),
    filters: Filters = ANY,
) -> SkillDocument:
    """The document of a parsed skill."""
    analysis = analyse_skill(parsed)
    return SkillDocument(
        key=key,
        content_hash=content_hash,
        parsed=parsed,
        fields=analysis.fields,
        forward=analysis.forward,
        passage_terms=analysis.passage_terms,
        vectors=vectors,
        section_hashes=section_hashes,
        filters=filters,
    )


def tiny_document(name: str, body: str = "Do it.", seq: int = 1) -> SkillDocument:
    """A skill of two sections, the second of which every skill has, with vectors of the tiny
    encoder."""
    text = f"---\nname: {name}\ndescription: Helps with {name}\n---\n# {name}\n\n{body}\n\n"
    parsed = parse_skill(name, (text + "## Care\n\nOil it.\n").encode())
    return make_document(
        RevisionKey(f"home:{name}", seq),
        parsed,
        content_hash=f"{name} {seq}",
        vectors=ENCODER.encode_texts(skill_texts(parsed)),
        section_hashes=section_text_hashes(ENCODER.model, parsed),
        filters=Filters(source=("home",), language=("en",)),
    )
