"""Findings of the scanner in a library: selection, and conversion to SARIF 2.1.0."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from graph.records import CatalogEntry
from skills.record import SafetyFinding
from skills.review import Exemption, get_rule_id
from skills.scanner import SCANNER_VERSION, find_rule, get_quote, list_rules
from workers.library.skill_data import finding_data
from workers.library.skill_reader import SkillReader

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_SARIF_LEVELS = {1: "note", 2: "warning", 3: "error"}
_SECURITY_SEVERITIES = {1: "3.0", 2: "6.0", 3: "9.0"}
"""Scores by level, which code scanning services show as low, medium, high or critical."""


@dataclass(frozen=True, slots=True)
class FindingFilter:
    """Filter of findings. rule: id of a rule; "": any. level: the lowest.
    source: id of a source."""

    rule: str = ""
    level: int = 1
    source: str | None = None
    skill_id: str = ""

    def covers(self, finding: SafetyFinding) -> bool:
        """Return whether a finding matches by level and rule."""
        return finding.level >= self.level and self.rule in ("", get_rule_id(finding))


@dataclass(frozen=True, slots=True)
class FoundFinding:
    """A finding in the published revision of a skill. exemption: why the finding does not count,
    None if it does."""

    entry: CatalogEntry
    finding: SafetyFinding
    exemption: Exemption | None = None

    @property
    def place(self) -> dict[str, Any]:
        """The revision, as JSON data."""
        entry = self.entry
        return {
            "skill_id": entry.skill_id,
            "seq": entry.seq,
            "content_hash": entry.content_hash,
        }

    def describe(self) -> dict[str, Any]:
        """Return the finding as JSON data."""
        return self.place | finding_data(self.finding, self.exemption)


def find_findings(reader: SkillReader, wanted: FindingFilter) -> Iterator[FoundFinding]:
    """Yield the findings in published skills, by skill, then in the order of the scanner."""
    found = reader.iterate_with_findings(wanted.source, wanted.skill_id, wanted.rule)
    for entry, counted in found:
        for finding in filter(wanted.covers, counted.findings):
            yield FoundFinding(entry, finding, counted.exempt.get(finding))


def to_sarif(findings: Iterable[FoundFinding], version: str) -> dict[str, Any]:
    """Return findings as a SARIF log with one run. version: of skillbus.

    The root of each source is a base of URIs. A fingerprint stays the same while rule, file and
    quoted text do, even if the line moves. Findings without a rule (judgements, older
    scanners) have their kind as rule.
    """
    rules = {rule.id: rule for rule in list_rules().values()}
    places = {rule: place for place, rule in enumerate(rules)}
    results, sources = [], set()
    for one in findings:
        results.append(_to_result(one, places))
        sources.add(one.entry.source_id)
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "skillbus",
                        "semanticVersion": version,
                        "properties": {"scanner": SCANNER_VERSION},
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": f"The skill {rule.reason}"},
                                "help": {"text": rule.remedy},
                                "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
                                "properties": {
                                    "kind": rule.kind,
                                    "security-severity": _SECURITY_SEVERITIES[rule.level],
                                },
                            }
                            for rule in rules.values()
                        ],
                    }
                },
                "originalUriBaseIds": {
                    source: {"description": {"text": f"the root of the source {source}"}}
                    for source in sorted(sources)
                },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }


def _to_result(found: FoundFinding, places: dict[str, int]) -> dict[str, Any]:
    finding, rule = found.finding, find_rule(found.finding)
    file = "/".join(filter(None, (found.entry.path, finding.file or "SKILL.md")))
    mark = "\0".join((rule.id if rule else finding.kind, file, get_quote(finding)))
    return {
        "ruleId": rule.id if rule else finding.kind,
        **({"ruleIndex": places[rule.id]} if rule else {}),
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": f"The skill {finding.reason}" if rule else finding.reason},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(file), "uriBaseId": found.entry.source_id},
                    "region": {"startLine": max(finding.line, 1)},
                }
            }
        ],
        **({"suppressions": [_to_suppression(found.exemption)]} if found.exemption else {}),
        "partialFingerprints": {"skillbusFinding/v1": hashlib.sha256(mark.encode()).hexdigest()},
        "properties": found.place,
    }


def _to_suppression(exemption: Exemption) -> dict[str, str]:
    """Return why a result does not count. Services show only results without suppressions."""
    if exemption.waiver is None:
        reason = "its rule is in policy.suppressed_rules"
    else:
        reason = f"{exemption.waiver.principal}: {exemption.waiver.reason}"
    return {"kind": "external", "status": "accepted", "justification": reason}
