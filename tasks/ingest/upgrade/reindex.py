"""Copy a library's revisions from one index to another, while it is queried and changed.

The target may have another model or schema: parsed skills are analysed again, and vectors are
copied if the model is the same, else encoded. Documents are write-once, so a copy that was
interrupted continues where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from search.protocol import Encoder, SearchIndex, SkillDocument, StoredRevision, Vector
from search.skill_analysis import analyse_skill, section_text_hashes
from skills.passages import section_texts
from skills.record import RevisionKey
from tasks.encode import encode_skills, supports_language

QUIET_SECONDS = 2.0
"""Seconds without publications, after writes were blocked, before the switch: a task that wrote its
documents just before the block publishes them a moment later."""

_BATCH_REVISIONS = 128
_CAUGHT_UP_REVISIONS = 64
"""A copy pass of at most this many revisions is the last pass before writes are blocked."""

ReadPointers = Callable[[], Mapping[str, int]]
"""Function that returns the present skill id -> published seq."""

ReportProgress = Callable[[int, int], None]
"""Function called with the number of revisions copied and to copy."""


@dataclass(frozen=True, slots=True)
class IndexCopier:
    """Copies revisions from `source` to `target`.

    model: of the target. encoder: computes the vectors of another model; None if both indices have
    the same model, so that vectors are copied.
    """

    source: SearchIndex
    target: SearchIndex
    model: str
    encoder: Encoder | None = None

    def copy_revisions(
        self, keys: Sequence[RevisionKey], progress: ReportProgress | None = None
    ) -> int:
        """Copy the revisions and section vectors that the target lacks; returns the number of
        revisions."""
        copied = 0
        for start in range(0, len(keys), _BATCH_REVISIONS):
            batch = keys[start : start + _BATCH_REVISIONS]
            copied += self._copy_batch(batch)
            if progress is not None:
                progress(start + len(batch), len(keys))
        return copied

    def _copy_batch(self, keys: Sequence[RevisionKey]) -> int:
        present, vectorised = self.target.complete_keys(keys), self.target.get_skill_vectors(keys)
        # Another model may know languages of skills that have no vectors so far.
        embedded = self.source.get_section_vectors(keys) if self.encoder is None else {}
        wanted = list(embedded) if self.encoder is None else list(keys)
        embedded_in_target = self.target.get_section_vectors(wanted)
        lacking = [key for key in keys if key not in present or key not in vectorised]
        unembedded = [key for key in wanted if key not in embedded_in_target]
        revisions = self.source.get_revisions(list(dict.fromkeys((*lacking, *unembedded))))
        vectors = self._skill_vectors([revisions[key] for key in lacking if key in revisions])
        fresh = [revisions[key] for key in lacking if key in revisions and key not in present]
        self.target.add([_build_document(one, vectors.get(one.key), self.model) for one in fresh])
        late = {key: vectors[key] for key in present.difference(vectorised) if key in vectors}
        self.target.save_skill_vectors(late)
        self._copy_sections([revisions[key] for key in unembedded if key in revisions], embedded)
        return len(fresh)

    def _skill_vectors(self, revisions: Sequence[StoredRevision]) -> Mapping[RevisionKey, Vector]:
        """Return vectors by key; revisions without vectors in the source may be missing."""
        if self.encoder is None:
            return self.source.get_skill_vectors([one.key for one in revisions])
        return encode_skills(self.encoder, revisions, self.encoder.encode_texts)

    def _copy_sections(
        self, revisions: Sequence[StoredRevision], embedded: Mapping[RevisionKey, Vector]
    ) -> None:
        if self.encoder is not None:
            encoder = self.encoder
            revisions = [one for one in revisions if supports_language(encoder, one.parsed)]
            embedded = _encode_sections(encoder, revisions)
        for one in revisions:
            hashes = section_text_hashes(self.model, one.parsed)
            self.target.save_section_vectors(one.key, hashes, embedded[one.key])


def _encode_sections(
    encoder: Encoder, revisions: Sequence[StoredRevision]
) -> dict[RevisionKey, Vector]:
    """Return vectors of all sections, encoded together, since batches of similar length are
    fastest."""
    texts = {one.key: section_texts(one.parsed) for one in revisions}
    flat = [text for section in texts.values() for text in section]
    vectors = encoder.encode_texts(flat) if flat else np.empty((0, encoder.dimension), np.float32)
    ends = np.cumsum([len(section) for section in texts.values()])
    parts = np.split(vectors, ends[:-1]) if len(ends) else []
    return dict(zip(texts, parts, strict=True))


def _build_document(revision: StoredRevision, vectors: Vector | None, model: str) -> SkillDocument:
    analysis = analyse_skill(revision.parsed)
    return SkillDocument(
        key=revision.key,
        content_hash=revision.content_hash,
        parsed=revision.parsed,
        fields=analysis.fields,
        forward=analysis.forward,
        passage_terms=analysis.passage_terms,
        vectors=vectors,
        section_hashes=section_text_hashes(model, revision.parsed),
        filters=revision.filters,
    )


class IndexReplacement(Protocol):
    """An index and its replacement."""

    def block_writes(self) -> None:
        """Make the old index refuse writes."""
        ...

    def allow_writes(self) -> None:
        """Make the old index accept writes again."""
        ...

    def switch(self) -> None:
        """Replace the old index by the new one, atomically."""
        ...


def reindex(
    replacement: IndexReplacement,
    copier: IndexCopier,
    pointers: ReadPointers,
    progress: ReportProgress | None = None,
) -> int:
    """Copy all published revisions, including those published meanwhile, then switch to the new
    index.

    The old index answers queries throughout. It refuses writes from shortly before the switch;
    tasks that fail then are retried. Returns how many revisions were copied. An error or an
    interrupt before the switch leaves the old index in use and writable; the next call continues
    the copy.
    """
    copied = last_pass = copier.copy_revisions(_keys(pointers), progress)
    while last_pass > _CAUGHT_UP_REVISIONS:
        last_pass = copier.copy_revisions(_keys(pointers), progress)
        copied += last_pass
    switched = False
    try:
        replacement.block_writes()
        copied += _copy_until_quiet(copier, pointers)
        replacement.switch()
        switched = True
    finally:
        if not switched:
            replacement.allow_writes()
    return copied


def _copy_until_quiet(copier: IndexCopier, pointers: ReadPointers) -> int:
    copied, seen = 0, _keys(pointers)
    copied += copier.copy_revisions(seen)
    quiet_since = time.monotonic()
    while time.monotonic() < quiet_since + QUIET_SECONDS:
        time.sleep(QUIET_SECONDS / 8)
        now = _keys(pointers)
        fresh = sorted(set(now).difference(seen))
        if fresh:
            copied += copier.copy_revisions(fresh)
            seen, quiet_since = now, time.monotonic()
    return copied


def _keys(pointers: ReadPointers) -> list[RevisionKey]:
    return [RevisionKey(skill_id, seq) for skill_id, seq in pointers().items() if seq]
