from __future__ import annotations

import numpy as np

from search.packed_records import HashLists, pack_records
from search.scoring.format_promotion import has_dedicated_skills, promote_format_owners
from search.scoring.library_statistics import LibraryStatistics
from search.skill_analysis import analyse_skill
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey


def library(*skills: tuple[str, str]) -> tuple[LibraryStatistics, HashLists]:
    records = {}
    for number, (name, body) in enumerate(skills):
        text = f"---\nname: {name}\ndescription: About {name}.\n---\n{body}\n"
        forward = analyse_skill(parse_skill(name, text.encode())).forward
        records[RevisionKey(f"home:{name}-{number}", 1)] = forward
    packed = pack_records(records)
    return LibraryStatistics([packed]), packed.names


PLAIN = [(f"subject-{word}", "Plain words.") for word in ("alder", "birch", "cedar", "elm", "fir")]


def test_a_format_that_many_mention_and_none_is_about_is_not_special() -> None:
    statistics, _ = library(*PLAIN, ("tide-tables", "Write json."), ("looms", "Read json."))
    assert not has_dedicated_skills(("json",), statistics)
    assert not has_dedicated_skills(("unseen",), statistics)


def test_a_format_with_an_owner_is_special_until_the_library_is_all_about_it() -> None:
    statistics, _ = library(*PLAIN, ("pdf", "Read pages."), ("looms", "Print a pdf."))
    assert has_dedicated_skills(("pdf",), statistics)
    everyday, _ = library(*((f"pdf-{name}", "Read a pdf.") for name, _ in PLAIN))
    assert not has_dedicated_skills(("pdf",), everyday)


def test_the_skill_that_is_most_about_the_format_is_moved_up() -> None:
    statistics, names = library(*PLAIN, ("pdf-contract-redactor", "Cut."), ("pdf", "Read pages."))
    order = list(range(7))
    scores = -np.arange(7, dtype=np.float64)
    moved, slots = promote_format_owners({"pdf": ("pdf",)}, names, scores, statistics, order, 3)
    assert moved == [0, 1, 6, 2, 3, 4, 5]
    assert slots == {6: "pdf"}


def test_an_owner_among_the_first_stays_where_it_is() -> None:
    statistics, names = library(*PLAIN, ("pdf", "Read pages."))
    order = [5, 0, 1, 2, 3, 4]
    moved, slots = promote_format_owners(
        {"pdf": ("pdf",)}, names, np.arange(6.0), statistics, order, 2
    )
    assert moved == order
    assert slots == {}


def test_two_formats_take_two_places() -> None:
    statistics, names = library(*PLAIN, ("pdf", "Pages."), ("xlsx", "Cells."))
    formats = {"pdf": ("pdf",), "xlsx": ("xlsx",)}
    moved, slots = promote_format_owners(formats, names, np.zeros(7), statistics, list(range(7)), 4)
    assert sorted(moved[2:4]) == [5, 6]
    assert slots == {5: "pdf", 6: "xlsx"}


def test_an_owner_among_the_first_makes_no_room_for_another() -> None:
    statistics, names = library(*PLAIN, ("pdf", "Pages."), ("xlsx", "Cells."))
    formats = {"pdf": ("pdf",), "xlsx": ("xlsx",)}
    order = [0, 1, 5, 2, 3, 4, 6]
    moved, slots = promote_format_owners(formats, names, np.zeros(7), statistics, order, 3)
    assert moved == [0, 5, 6, 1, 2, 3, 4]
    assert slots == {6: "xlsx"}


def test_no_places_are_no_slots() -> None:
    statistics, names = library(*PLAIN, ("pdf", "Pages."))
    order = list(range(6))
    assert promote_format_owners({"pdf": ("pdf",)}, names, np.zeros(6), statistics, order, 0) == (
        order,
        {},
    )
