"""The hardware page knows every profile, and claims of none more than its catalog entry does."""

from __future__ import annotations

from pages import ROOT, table

from matrix import catalog

PAGE = ROOT / "docs" / "hardware.md"
SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


def test_every_profile_is_there_and_says_whether_it_was_run_on_hardware() -> None:
    told = {row[0]: row[3].startswith("yes") for row in table(PAGE, "Profiles")}
    assert told == {name: profile.run_on_hardware for name, profile in SHIPPED.hardware.items()}


def test_the_page_of_images_says_of_every_profile_without_hardware_that_it_was_not_run() -> None:
    rows = table(ROOT / "docs" / "containers.md", "Images")
    said = {row[0]: row[3] for row in rows}
    for name, profile in SHIPPED.hardware.items():
        assert ("not run on hardware" in said[name]) is not profile.run_on_hardware


def test_the_check_is_there_and_nobody_says_that_it_ran_on_a_gpu() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert (ROOT / "tests" / "gpu" / "check.sh").stat().st_mode & 0o100
    assert "It has not been run on a GPU." in text
