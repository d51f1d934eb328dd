"""The page in a real browser: what its script does."""

import shutil
import subprocess
from pathlib import Path

import pytest
from synthetic_runs import eventful_records, header

from matrix.catalog import load
from matrix.report import write_all
from matrix_adapters.protocol import State

BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")


def dump(url: str, profile: Path, *extra: str) -> str:
    """The document after its scripts have run."""
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
        *extra,
        "--dump-dom",
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode or not done.stdout:
        pytest.skip(f"the browser does not run here: {done.stderr.strip()[-200:]}")
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_all(folder, eventful_records(folder), header(), load())
    return folder


def test_a_link_to_a_cell_opens_its_drawer(run: Path, tmp_path: Path) -> None:
    wrong = next(r for r in eventful_records() if r.state is State.INCORRECT)
    page = (run / "reports" / "matrix.html").as_uri()
    document = dump(f"{page}#c-{wrong.id}", tmp_path / "profile")
    drawer = document.split('<dialog id="drawer"')[1]
    assert drawer.split(">")[0].find("open") > 0
    assert "PyTorch 2.13.0 cpu compile, distilbert" in drawer
    assert "outside tolerance" in drawer


def test_without_a_link_the_drawer_stays_closed_and_the_search_field_appears(
    run: Path, tmp_path: Path
) -> None:
    document = dump((run / "reports" / "matrix.html").as_uri(), tmp_path / "profile")
    assert "open" not in document.split('<dialog id="drawer"')[1].split(">")[0]
    assert "hidden" not in document.split('class="find"')[1].split(">")[0]
