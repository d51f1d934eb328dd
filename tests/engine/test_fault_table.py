"""The table of faults in the guide is what the faults really give: each is provoked, each row compared."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest
from conftest import make_tiny
from faults import FAULTS, HEADING, PAGE, Fault, Stage, page_row, provoked
from pages import matches, table
from private_engine import PrivateEngine


def test_the_page_has_one_row_for_each_fault() -> None:
    assert [row[0] for row in table(PAGE, HEADING)] == [fault.name for fault in FAULTS]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_ends_as_the_page_says(
    fault: Fault, request: pytest.FixtureRequest, tiny: str, tmp_path: Path
) -> None:
    if fault.needs and not fault.needs.exists():
        pytest.skip(f"{fault.needs} is not installed (Debian: libfaketime)")
    engine: PrivateEngine = request.getfixturevalue(
        "small" if fault.small else "fragile" if fault.restarts else "private"
    )
    image = make_tiny(engine) if fault.small else tiny
    with engine.client() as client:
        row = provoked(fault, Stage(engine=engine, client=client, image=image, folder=tmp_path))
        _remove_images(client)
    (written,) = [line for line in table(PAGE, HEADING) if line[0] == fault.name]
    given = [cell.replace("`", "") for cell in page_row(fault, row)]
    differ = [(w, g) for w, g in zip(written, given, strict=True) if not matches(w, g)]
    assert not differ, f"{PAGE.name} says, and what it gave: {differ}"


def _remove_images(client: docker.DockerClient) -> None:
    """Those that a fault made for itself: they have no name."""
    client.images.prune(filters={"dangling": True})
