"""What the machine was like around a measurement."""

from __future__ import annotations
from typing import Any


def distributions() -> list[str]:
    return []


def machine() -> dict[str, Any]:
    return {}


def moment(device: str) -> dict[str, Any]:
    return {}
