"""Container images: how one is described, built, reused and removed.

`ensure_image` is what a backend calls; `key` says what an image's identity is (its content,
never its tag or the engine's id); `wheels` is the offline half, done on the host.
"""

from matrix.environments.images.ensure import BuiltImage, ImageBuilder, ImageOptions, ensure_image

__all__ = ["BuiltImage", "ImageBuilder", "ImageOptions", "ensure_image"]
