"""Filter values of rows in memory, to find the rows that pass the filters of a search."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from search.protocol import FILTER_NAMES, Filters


class FilterPlaces:
    """The filter values of rows, by place; places are added in order and never removed."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], array[int]] = {}
        self._filters: list[Filters] = []

    def add(self, place: int, filters: Filters) -> None:
        """Add the values of the row at a place."""
        self._filters.append(filters)
        for name in FILTER_NAMES:
            for value in getattr(filters, name):
                self._places.setdefault((name, value), array("i")).append(place)

    def of(self, place: int) -> Filters:
        """Return the values of the row at a place."""
        return self._filters[place]

    def allowed(self, size: int, filters: Filters) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the first `size` rows that pass, (size,); None without filters."""
        allowed: npt.NDArray[np.bool_] | None = None
        for name in FILTER_NAMES:
            values = getattr(filters, name)
            if not values:
                continue
            passing = np.zeros(size, dtype=np.bool_)
            for value in values:
                known = self._places.get((name, value), array("i"))
                # A copy, since an array that others read cannot grow.
                places = np.frombuffer(known.tobytes(), dtype=np.intc)
                passing[places[places < size]] = True
            allowed = passing if allowed is None else allowed & passing
        return allowed
