#!/usr/bin/env bash
# Commit subjects since a tag, grouped by prefix. Usage: collect_changes.sh [TAG]
set -euo pipefail

tag=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
if [[ -z $tag ]]; then
    echo "no tag found" >&2
    exit 1
fi

subjects=$(git log --no-merges --format='%s' "$tag..HEAD")
known='^(feat|fix|perf|dock|deps|chore|test)(\([^)]*\))?!?: '
echo "# Changes since $tag"
for prefix in feat fix perf dock deps chore test; do
    found=$(grep -E "^$prefix(\([^)]*\))?!?: " <<< "$subjects" || true)
    if [[ -n $found ]]; then
        printf '\n## %s\n' "$prefix"
        sed -E "s/$known/- /" <<< "$found"
    fi
done
other=$(grep -vE "$known" <<< "$subjects" | sed '/^$/d' || true)
if [[ -n $other ]]; then
    printf '\n## other\n'
    sed 's/^/- /' <<< "$other"
fi
