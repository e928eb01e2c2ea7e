"""The cache of what was used last."""

from __future__ import annotations

from skills.lru_cache import LRUCache


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: LRUCache[str, str] = LRUCache(10)
    for name in "abc":
        cache.put(name, name, 4)
    assert cache.get("abc") == {"b": "b", "c": "c"}
    cache.get("b")
    cache.put("d", "d", 4)
    assert cache.get("bcd") == {"b": "b", "d": "d"}
    cache.put("huge", "huge", 11)
    assert cache.get(["huge", "d"]) == {}


def test_values_are_replaced_and_removed() -> None:
    cache: LRUCache[str, str] = LRUCache(3)
    cache.put("a", "a", 3)
    cache.put("a", "again", 2)
    cache.put("b", "b")
    assert cache.get("ab") == {"a": "again", "b": "b"}
    cache.evict(["a", "none"])
    assert cache.get("ab") == {"b": "b"}
    cache.clear()
    cache.put("c", "c", 3)
    assert cache.get("bc") == {"c": "c"}
