"""Index sets: the indices of one model and schema, their names, mappings and aliases.

The identity of a set never changes: its indices hold schema, model and dimension in `_meta`. The
aliases `<prefix>-skills` and so on point to the live set and are moved in one request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from config.errors import MisconfiguredError, PermanentError, UsageError
from config.server_settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.skill_analysis import ANALYSIS_VERSION

STORAGE_VERSION = 1
"""Incremented when documents of earlier versions can no longer be read."""

_MAPPING_VERSION = 1
"""Incremented when mappings change in a way that an existing index cannot follow."""

SCHEMA = f"{STORAGE_VERSION}.{ANALYSIS_VERSION}.{_MAPPING_VERSION}"
"""Version of mappings and of the analysis of skills; another schema needs another set."""

INDEX_KINDS = ("skills", "forward", "revisions", "vectors", "sections")
"""Kinds of index in a set. A revision is written to `skills` last and deleted from it first."""

_META = "skillbus"


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """Schema, model and dimension that an index set was created with."""

    schema: str
    model: str
    dimension: int

    def __str__(self) -> str:
        return f"model {self.model!r}, {self.dimension} dimensions, schema {self.schema}"


@dataclass(frozen=True, slots=True)
class IndexSet:
    """An index set by name."""

    name: str
    identity: IndexIdentity

    def index_name(self, kind: str) -> str:
        """Return the name of an index of the set."""
        return f"{self.name}-{kind}"

    def write_alias(self, kind: str) -> str:
        """Return the alias for writes, which never create an index by mistake (`require_alias`)."""
        return f"{self.name}-{kind}-write"


def set_name(prefix: str, identity: IndexIdentity) -> str:
    """Return `<prefix>-<model>-<digest>`, unique for the identity."""
    slug = re.sub(r"[^a-z0-9]+", "-", identity.model.lower()).strip("-")[:40].strip("-")
    digest = blake2b(
        f"{identity.schema}\0{identity.model}\0{identity.dimension}".encode(), digest_size=5
    )
    return f"{prefix}-{slug or 'model'}-{digest.hexdigest()}"


def load_definition(name: str, shards: int, replicas: int) -> dict[str, Any]:
    """Return settings and mappings of an index, from its file in `mappings`."""
    path = files("search.elastic").joinpath("mappings", f"{name}.json")
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    body["settings"]["index"] |= {"number_of_shards": shards, "number_of_replicas": replicas}
    return body


def index_definition(
    kind: str, identity: IndexIdentity, shards: int, replicas: int
) -> dict[str, Any]:
    """Return settings and mappings of an index of a set."""
    body = load_definition(kind, shards, replicas)
    _set_dimension(body["mappings"]["properties"], identity.dimension)
    body["mappings"]["_meta"] = {_META: asdict(identity)}
    return body


def _set_dimension(properties: dict[str, Any], dimension: int) -> None:
    for field in properties.values():
        if field["type"] == "dense_vector":
            field["dims"] = dimension
        _set_dimension(field.get("properties", {}), dimension)


class IndexSets:
    """The index sets under one prefix."""

    def __init__(self, connection: ElasticsearchConnection, servers: ServerSettings) -> None:
        self._connection = connection
        self._servers = servers
        self._prefix = servers.elasticsearch_prefix

    # -- finding

    def get_live(self) -> IndexSet | None:
        """Return the set that the aliases point to, None if there is none yet."""
        alias = f"{self._prefix}-skills"
        with self._connection.translate_errors() as client:
            found = client.options(ignore_status=404).indices.get_alias(name=alias).body
        if not isinstance(found, dict):
            raise self._connection.incompatible_error(found)
        names = [name for name in found if name.startswith(f"{self._prefix}-")]
        # If two sets were activated at once, every process uses the first by name.
        return self._read_set(min(names)) if names else None

    def _read_set(self, skills_index: str) -> IndexSet:
        with self._connection.translate_errors() as client:
            mapping = client.indices.get_mapping(index=skills_index)[skills_index]["mappings"]
        identity = _parse_identity(mapping)
        if identity is None:
            raise MisconfiguredError(
                f"{self._connection.address}: {skills_index} was not made by skillbus; choose "
                "another servers.elasticsearch_prefix"
            )
        return IndexSet(skills_index.removesuffix("-skills"), identity)

    def open(self, identity: IndexIdentity) -> IndexSet:
        """Return the live set; raises MisconfiguredError if none has this identity."""
        live = self.get_live()
        if live is None:
            raise MisconfiguredError(
                f"{self._connection.address} holds no search index with prefix "
                f"{self._prefix!r} yet; start a worker that ingests, or sync"
            )
        self._check(live, identity)
        return live

    def ensure(self, identity: IndexIdentity) -> IndexSet:
        """Return the live set, created if there is none; several processes may do so at once.

        Raises MisconfiguredError if the live set has another identity or lacks an index.
        """
        live = self.get_live()
        if live is not None:
            self._check(live, identity)
            present = self._get_mappings(live)
            if lost := [kind for kind in INDEX_KINDS if kind not in present]:
                raise MisconfiguredError(
                    f"{self._connection.address}: {live.index_name(lost[0])} is missing; "
                    "restore it from a snapshot, or delete the others of "
                    f"{live.name} and ingest again"
                )
            return live
        made = self.create(identity)
        if self.get_live() is None:
            self._set_aliases(self._additions(made))
        return self.open(identity)

    def _check(self, live: IndexSet, identity: IndexIdentity) -> None:
        if live.identity != identity:
            raise MisconfiguredError(
                f"the search index {live.name} was made with {live.identity}, not {identity}: "
                "set it back, or run `skillbus reindex`"
            )

    def _get_mappings(self, one: IndexSet) -> dict[str, Mapping[str, Any]]:
        """Return the mappings of the existing indices of a set, by kind."""
        with self._connection.translate_errors() as client:
            found = client.indices.get_mapping(
                index=[one.index_name(kind) for kind in INDEX_KINDS], ignore_unavailable=True
            )
        names = {one.index_name(kind): kind for kind in INDEX_KINDS}
        return {names[name]: body["mappings"] for name, body in found.items()}

    # -- creating

    def create(self, identity: IndexIdentity) -> IndexSet:
        """Create a set of this identity without activating it; existing indices are kept."""
        made = IndexSet(set_name(self._prefix, identity), identity)
        for kind in INDEX_KINDS:
            if kind not in self._get_mappings(made):
                self._create(made, kind)
        for kind, mapping in self._get_mappings(made).items():
            if _parse_identity(mapping) != identity:
                raise MisconfiguredError(
                    f"{self._connection.address}: {made.index_name(kind)} was not made by skillbus "
                    f"for {identity}; delete it, or choose another servers.elasticsearch_prefix"
                )
        return made

    def _create(self, made: IndexSet, kind: str) -> None:
        body = index_definition(
            kind,
            made.identity,
            self._servers.elasticsearch_shards,
            self._servers.elasticsearch_replicas,
        )
        self._connection.create_index(
            made.index_name(kind), aliases={made.write_alias(kind): {}}, **body
        )

    def activate(self, chosen: IndexSet) -> None:
        """Make a set the live one: move all aliases in one request. Other sets are kept."""
        removals = [
            {"remove": {"index": f"{self._prefix}-*-{kind}", "alias": f"{self._prefix}-{kind}"}}
            for kind in INDEX_KINDS
        ]
        self._set_aliases([*removals, *self._additions(chosen)])

    def _additions(self, chosen: IndexSet) -> list[dict[str, Any]]:
        return [
            {"add": {"index": chosen.index_name(kind), "alias": f"{self._prefix}-{kind}"}}
            for kind in INDEX_KINDS
        ]

    def _set_aliases(self, actions: Sequence[Mapping[str, Any]]) -> None:
        try:
            with self._connection.translate_errors() as client:
                client.indices.update_aliases(actions=actions)
        except PermanentError as error:
            raise MisconfiguredError(
                f"the aliases {self._prefix}-… cannot be set: {error}; choose another "
                "servers.elasticsearch_prefix"
            ) from error

    # -- replacing

    def block_writes(self, one: IndexSet, blocked: bool) -> None:
        """Block writes to a set, once those in progress have ended, or allow them again."""
        names = [one.index_name(kind) for kind in self._get_mappings(one)]
        with self._connection.translate_errors() as client:
            if blocked:
                client.indices.add_block(index=names, block="write")
            else:
                client.indices.put_settings(index=names, settings={"index.blocks.write": None})

    def superseded(self) -> list[IndexSet]:
        """Return the sets that are not live: of a reindex in progress, or replaced by one."""
        live = self.get_live()
        with self._connection.translate_errors() as client:
            found = client.indices.get_mapping(index=f"{self._prefix}-*-skills")
        sets = []
        for name, body in found.items():
            identity = _parse_identity(body["mappings"])
            one = name.removesuffix("-skills")
            if identity is not None and (live is None or one != live.name):
                sets.append(IndexSet(one, identity))
        return sorted(sets, key=lambda one: one.name)

    def delete(self, one: IndexSet) -> None:
        """Delete a set that is not live; raises UsageError for the live one."""
        live = self.get_live()
        if live is not None and live.name == one.name:
            raise UsageError(f"{one.name} is the live set; it cannot be deleted")
        with self._connection.translate_errors() as client:
            client.indices.delete(
                index=[one.index_name(kind) for kind in INDEX_KINDS], ignore_unavailable=True
            )


def _parse_identity(mapping: Mapping[str, Any]) -> IndexIdentity | None:
    """Return the identity in the `_meta` of a mapping, None if skillbus did not write it."""
    meta = mapping.get("_meta", {}).get(_META)
    if not isinstance(meta, dict):
        return None
    try:
        return IndexIdentity(str(meta["schema"]), str(meta["model"]), int(meta["dimension"]))
    except (KeyError, TypeError, ValueError):
        return None
