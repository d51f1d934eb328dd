"""Names that this product gives to what it makes on an engine."""

from __future__ import annotations

IMAGE = "org.framework-matrix.image"  # "<framework>-<hardware>", in every stage of every Dockerfile
KEY = "org.framework-matrix.key"  # the content key, in every stage as well
REPOSITORY = "framework-matrix"


def tag(framework: str, version: str, hardware: str, key: str) -> str:
    """What an image is called on the engine. Only its last part, the key, means anything."""
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in version)
    return f"{REPOSITORY}/{framework.lower()}:{plain}-{hardware}-{key}"
