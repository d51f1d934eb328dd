"""What is installed in an environment, written once: thousands of records of cells.jsonl may share it.

The list stands in the first record of an environment. In later ones it is left out, and readers
take it from the first.
"""

from __future__ import annotations

from typing import Any


class Locks:
    """The lists met so far, by environment; for one pass over a file, writing or reading."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Any] = {}

    def left_out(self, line: dict[str, Any]) -> dict[str, Any]:
        """A record to be written, without the list where an earlier one has it."""
        environment = line["environment"]
        lock = environment.get("lock")
        if not lock:
            return line
        known = self._known.get(_identity(environment))
        if known is None:
            self._known[_identity(environment)] = lock
        elif known == lock:
            del environment["lock"]
        return line

    def put_back(self, line: Any) -> Any:
        """A record as it was read, with the list that an earlier one has."""
        environment = line.get("environment") if isinstance(line, dict) else None
        if not isinstance(environment, dict):
            return line  # no record: whoever validates it says so
        lock = environment.get("lock") or self._known.get(_identity(environment))
        if lock:
            self._known.setdefault(_identity(environment), lock)
            environment["lock"] = lock
        return line


def _identity(environment: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(environment.get(field, "")) for field in ("name", "key", "backend"))
