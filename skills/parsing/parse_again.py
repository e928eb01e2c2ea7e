"""Parses the stored text of a skill again, for a newer version of the parser."""

from __future__ import annotations

from dataclasses import replace

from skills import licences
from skills.parsing.decoding import DECODING_WARNINGS
from skills.parsing.parse_skill import ParseLimits, parse_skill
from skills.record import ParsedSkill, ParseWarning
from skills.roles import RoleClassifier

NOT_PARSED_AGAIN = "not_parsed_again"
"""Code of the warning about a skill that stays as an older version of the parser made it."""


def parse_again(
    path: str,
    stored: ParsedSkill,
    limits: ParseLimits,
    classifier: RoleClassifier | None,
) -> ParsedSkill:
    """Return what this version of the parser makes of a skill; parameters as in `parse_skill`.

    Of the files only the decoded lines of SKILL.md are stored. What comes from the bytes or from
    other files stays as it is: warnings about the encoding, findings in other files, and a licence
    that is not stated in SKILL.md. A text that this version cannot parse stays as it is, with a
    warning: a published skill is not lost by an upgrade.
    """
    kept = [one for one in stored.warnings if one.code in DECODING_WARNINGS]
    content = "\n".join(stored.lines).encode()
    files = stored.record.files
    try:
        parsed = parse_skill(path, content, files, limits, classifier)
    except Exception as error:  # ParseError, or a defect of the parser, which others must not feel
        reason = f"stays as an older version parsed it: {type(error).__name__}: {error}"
        earlier = [one for one in stored.warnings if one.code != NOT_PARSED_AGAIN]
        warning = ParseWarning(NOT_PARSED_AGAIN, 0, reason)
        return replace(stored, warnings=(*earlier, warning))
    record = parsed.record
    findings = (*record.safety, *(one for one in stored.record.safety if one.file))
    has_terms = any(licences.is_licence_file(file.path) for file in files)
    record = replace(
        record,
        safety=findings,
        safety_level=max((finding.level for finding in findings), default=0),
        licence=stored.record.licence
        if has_terms and not licences.is_stated(record.licence)
        else record.licence,
        completions=stored.record.completions,
    )
    return replace(parsed, record=record, warnings=(*kept, *parsed.warnings))
