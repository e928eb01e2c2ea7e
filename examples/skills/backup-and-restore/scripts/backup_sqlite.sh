#!/usr/bin/env bash
# Consistent copy of a SQLite database with a checksum; old copies go only after a good new one.
# Usage: backup_sqlite.sh DATABASE FOLDER DAYS_TO_KEEP
set -euo pipefail

if [[ $# -ne 3 ]]; then
    echo "usage: $0 DATABASE FOLDER DAYS_TO_KEEP" >&2
    exit 2
fi

database=$1
folder=$2
days=$3

if [[ ! -f $database ]]; then
    echo "no such database: $database" >&2
    exit 1
fi
if [[ ! $days =~ ^[1-9][0-9]*$ ]]; then
    echo "days must be a positive whole number, not '$days'" >&2
    exit 2
fi

name=$(basename "$database" .db)
copy="$folder/${name}_$(date +%F).db"
partial="$copy.part"
mkdir -p "$folder"
trap 'rm -f "$partial"' EXIT

sqlite3 "$database" ".timeout 30000" ".backup '$partial'"
verdict=$(sqlite3 "$partial" "pragma integrity_check")
if [[ $verdict != ok ]]; then
    echo "the copy is damaged: $verdict" >&2
    exit 1
fi

mv "$partial" "$copy"
(cd "$folder" && sha256sum "$(basename "$copy")" > "$(basename "$copy").sha256")
find "$folder" -maxdepth 1 -type f -name "${name}_*.db*" ! -name "${name}_*-01.db*" \
    -mtime "+$days" -delete
find "$folder" -maxdepth 1 -type f -name "${name}_*-01.db*" -mtime +366 -delete
echo "$copy"
