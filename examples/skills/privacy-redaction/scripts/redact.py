"""Redact personal data from free text or a CSV table; standard input to standard output."""

from __future__ import annotations

import argparse
import csv
import hashlib
import hmac
import os
import re
import sys
from datetime import datetime

EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")
PHONE = re.compile(r"(?<![\w.])(?:\+|00|0)\d(?:[ -]?\d){8,13}(?!\d)")


def luhn(digits: str) -> bool:
    """Whether a digit string has a correct Luhn check digit."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def redact_text(text: str) -> str:
    """The text with e-mail addresses, payment cards and phone numbers replaced by markers."""

    def card(match: re.Match[str]) -> str:
        return "[CARD]" if luhn(re.sub(r"\D", "", match[0])) else match[0]

    return PHONE.sub("[PHONE]", CARD.sub(card, EMAIL.sub("[EMAIL]", text)))


def pseudonym(value: str, key: bytes) -> str:
    """A stable stand-in for a value, not reversible without the key."""
    return "p_" + hmac.new(key, value.encode(), hashlib.sha256).hexdigest()[:16]


def quarter_hour(text: str) -> str:
    """An ISO 8601 time rounded down to 15 minutes; an empty value stays empty."""
    if not text:
        return ""
    moment = datetime.fromisoformat(text)
    return moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0).isoformat()


def redact_csv(args: argparse.Namespace, key: bytes) -> None:
    """Copy a CSV table, dropping, pseudonymising and rounding the named columns."""
    reader = csv.DictReader(sys.stdin)
    names = reader.fieldnames or []
    unknown = {*args.pseudonym, *args.drop, *args.round_minutes} - set(names)
    if unknown:
        raise SystemExit(f"no such column: {', '.join(sorted(unknown))}")
    kept = [name for name in names if name not in args.drop]
    writer = csv.DictWriter(sys.stdout, kept, lineterminator="\n")
    writer.writeheader()
    for row in reader:
        shown = {}
        for name in kept:
            value = row[name] or ""
            if name in args.pseudonym:
                shown[name] = pseudonym(value, key)
            elif name in args.round_minutes:
                shown[name] = quarter_hour(value)
            else:
                shown[name] = redact_text(value)
        writer.writerow(shown)


def columns(text: str) -> list[str]:
    """Column names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def main() -> int:
    """Redact standard input in the chosen mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("text", "csv"))
    parser.add_argument("--pseudonym", type=columns, default=[])
    parser.add_argument("--drop", type=columns, default=[])
    parser.add_argument("--round-minutes", type=columns, default=[])
    args = parser.parse_args()
    if args.mode == "text":
        for line in sys.stdin:
            sys.stdout.write(redact_text(line))
        return 0
    key = os.environ.get("REDACT_KEY", "")
    if args.pseudonym and len(key) < 32:
        sys.stderr.write("REDACT_KEY is missing or shorter than 32 characters\n")
        return 1
    redact_csv(args, key.encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
