"""Index sets: the four indices of one model and schema, their names, mappings and aliases.

A set is never changed into another. Its indices carry schema, model and dimension in `_meta`; the
aliases `<prefix>-skills` and so on point at the live set and move together, in one call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from config.errors import MisconfiguredError, PermanentError, UsageError
from config.settings import ServerSettings
from search.elastic.connection import ElasticsearchConnection
from search.text.tokens import TOKENS_VERSION

STORAGE_VERSION = 1
"""Raised when documents written before can no longer be read back."""

SCHEMA = f"{STORAGE_VERSION}.{TOKENS_VERSION}"
"""What mappings and tokens are: another schema is another set."""

INDEX_KINDS = ("skills", "forward", "revisions", "sections")
"""The indices of a set. A revision is in `skills` last of all, and gone from it first."""

_META = "skillbus"


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """What an index set was made with."""

    schema: str
    model: str
    dimension: int

    def __str__(self) -> str:
        return f"model {self.model!r}, {self.dimension} dimensions, schema {self.schema}"


@dataclass(frozen=True, slots=True)
class IndexSet:
    """A set by name; `reading` and `writing` name one of its indices."""

    name: str
    identity: IndexIdentity

    def index_name(self, kind: str) -> str:
        """The index itself."""
        return f"{self.name}-{kind}"

    def write_alias(self, kind: str) -> str:
        """The alias that writes go through: while it is missing nothing can be made by mistake."""
        return f"{self.name}-{kind}-write"


def set_name(prefix: str, identity: IndexIdentity) -> str:
    """`<prefix>-<model>-<digest>`: legible, and another one for any other identity."""
    slug = re.sub(r"[^a-z0-9]+", "-", identity.model.lower()).strip("-")[:40].strip("-")
    digest = blake2b(
        f"{identity.schema}\0{identity.model}\0{identity.dimension}".encode(), digest_size=5
    )
    return f"{prefix}-{slug or 'model'}-{digest.hexdigest()}"


def index_definition(
    kind: str, identity: IndexIdentity, shards: int, replicas: int
) -> dict[str, Any]:
    """Settings and mappings of an index, from its file."""
    path = files("search.elastic").joinpath("mappings", f"{kind}.json")
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    body["settings"]["index"] |= {"number_of_shards": shards, "number_of_replicas": replicas}
    for field in body["mappings"]["properties"].values():
        if field["type"] == "dense_vector":
            field["dims"] = identity.dimension
    body["mappings"]["_meta"] = {
        _META: {
            "schema": identity.schema,
            "model": identity.model,
            "dimension": identity.dimension,
        }
    }
    return body


class IndexSets:
    """The index sets under one prefix."""

    def __init__(self, connection: ElasticsearchConnection, servers: ServerSettings) -> None:
        self._connection = connection
        self._servers = servers
        self._prefix = servers.elasticsearch_prefix

    # -- finding

    def get_live(self) -> IndexSet | None:
        """The set that the aliases point at, None before the first one was made."""
        alias = f"{self._prefix}-skills"
        with self._connection.translate_errors() as client:
            found = client.options(ignore_status=404).indices.get_alias(name=alias)
        names = [name for name in found if name.startswith(f"{self._prefix}-")]
        # Two that were made at once: the one that every process takes for live.
        return self._described(min(names)) if names else None

    def _described(self, skills_index: str) -> IndexSet:
        with self._connection.translate_errors() as client:
            mapping = client.indices.get_mapping(index=skills_index)[skills_index]["mappings"]
        identity = _identity(mapping)
        if identity is None:
            raise MisconfiguredError(
                f"{self._connection.address}: {skills_index} was not made by skillbus; choose "
                "another servers.elasticsearch_prefix"
            )
        return IndexSet(skills_index.removesuffix("-skills"), identity)

    def open(self, identity: IndexIdentity) -> IndexSet:
        """The live set, for reading. Raises SetupError when there is none, or one of another
        identity."""
        live = self.get_live()
        if live is None:
            raise MisconfiguredError(
                f"{self._connection.address} holds no search index with prefix "
                f"{self._prefix!r} yet; start a worker that ingests, or sync"
            )
        self._check(live, identity)
        return live

    def ensure(self, identity: IndexIdentity) -> IndexSet:
        """The live set, made when there is none; several processes may do so at once.

        Raises SetupError when the live set has another identity or lost an index.
        """
        live = self.get_live()
        if live is not None:
            self._check(live, identity)
            if missing := [kind for kind in INDEX_KINDS if kind not in self._kinds(live)]:
                raise MisconfiguredError(
                    f"{self._connection.address}: {live.index_name(missing[0])} is gone; restore "
                    f"it from a snapshot, or delete the others of {live.name} and ingest again"
                )
            return live
        self.activate(self.create(identity))
        return self.open(identity)

    def _check(self, live: IndexSet, identity: IndexIdentity) -> None:
        if live.identity != identity:
            raise MisconfiguredError(
                f"the search index {live.name} was made with {live.identity}, not {identity}: "
                "set it back, or run `skillbus reindex`"
            )

    def _kinds(self, one: IndexSet) -> dict[str, Mapping[str, Any]]:
        with self._connection.translate_errors() as client:
            found = client.indices.get_mapping(
                index=[one.index_name(kind) for kind in INDEX_KINDS], ignore_unavailable=True
            )
        names = {one.index_name(kind): kind for kind in INDEX_KINDS}
        return {names[name]: body["mappings"] for name, body in found.items()}

    # -- making

    def create(self, identity: IndexIdentity) -> IndexSet:
        """A set of this identity; what is there already stays as it is."""
        made = IndexSet(set_name(self._prefix, identity), identity)
        for kind in INDEX_KINDS:
            if kind not in self._kinds(made):
                self._create(made, kind)
        for kind, mapping in self._kinds(made).items():
            if _identity(mapping) != identity:
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
        wanted = {"index": made.index_name(kind), "aliases": {made.write_alias(kind): {}}, **body}
        with self._connection.translate_errors() as client:
            client.options(ignore_status=400).indices.create(**wanted)
        if kind not in self._kinds(made):
            with self._connection.translate_errors() as client:  # say why it was refused
                client.indices.create(**wanted)

    def activate(self, chosen: IndexSet) -> None:
        """Point the aliases at a set, all in one step; whoever they pointed at stays as it is."""
        actions: list[dict[str, Any]] = []
        live = self.get_live()
        for kind in INDEX_KINDS:
            alias = f"{self._prefix}-{kind}"
            if live is not None and live.name != chosen.name:
                actions.append({"remove": {"index": live.index_name(kind), "alias": alias}})
            actions.append({"add": {"index": chosen.index_name(kind), "alias": alias}})
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
        """Have a set refuse writes once those under way have ended, or take them again."""
        names = [one.index_name(kind) for kind in INDEX_KINDS]
        with self._connection.translate_errors() as client:
            if blocked:
                client.indices.add_block(index=names, block="write")
            else:
                client.indices.put_settings(index=names, settings={"index.blocks.write": None})

    def superseded(self) -> list[IndexSet]:
        """The sets that are not live, made by a reindex or left by one."""
        live = self.get_live()
        with self._connection.translate_errors() as client:
            found = client.indices.get_mapping(index=f"{self._prefix}-*-skills")
        sets = []
        for name, body in found.items():
            identity = _identity(body["mappings"])
            one = name.removesuffix("-skills")
            if identity is not None and (live is None or one != live.name):
                sets.append(IndexSet(one, identity))
        return sorted(sets, key=lambda one: one.name)

    def delete(self, one: IndexSet) -> None:
        """Delete a set that is not live; raises UsageError for the live one."""
        live = self.get_live()
        if live is not None and live.name == one.name:
            raise UsageError(f"{one.name} is the live set; it is not dropped")
        with self._connection.translate_errors() as client:
            client.indices.delete(
                index=[one.index_name(kind) for kind in INDEX_KINDS], ignore_unavailable=True
            )


def _identity(mapping: Mapping[str, Any]) -> IndexIdentity | None:
    meta = mapping.get("_meta", {}).get(_META)
    if not isinstance(meta, dict):
        return None
    try:
        return IndexIdentity(str(meta["schema"]), str(meta["model"]), int(meta["dimension"]))
    except (KeyError, TypeError, ValueError):
        return None
