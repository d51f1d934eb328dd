"""A session that runs a sweep in containers exactly as the product's own sessions run their commands."""

import importlib.util
import os
import sys
from pathlib import Path

import nox

_ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("product_noxfile", _ROOT / "noxfile.py")
_product = importlib.util.module_from_spec(_spec)
os.chdir(_ROOT)  # where it reads pyproject.toml
_spec.loader.exec_module(_product)
# Its sessions are registered with this file's; only the one below is asked for.


@nox.session(venv_backend="none")
def sweep(session: nox.Session) -> None:
    _product._run(
        session, sys.executable, str(Path(__file__).with_name("container_sweep.py")), *session.posargs
    )
