"""A library of custom operators for ONNX Runtime as a candidate: right, wrong, and not there.

The library is compiled without ONNX Runtime's headers, which its wheels lack: see custom_operator.cpp.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("custom_operator.cpp")
SWEEP = """\
name: custom
frameworks: [onnxruntime]
hardware: [cpu]
measure: {launches: 1, samples: 5, max_steady_s: 0.2, max_warmup_s: 0.2}
candidates:
  - name: mine
    operator: Relu
    framework: onnxruntime
    kind: ort_custom_ops
    callable: mine.so:of.mine::Relu
"""

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler"),
]

Records = dict[tuple[str, str, str], dict[str, Any]]


def run(folder: Path, *options: str, sweep: str = SWEEP) -> tuple[int, Records]:
    """The sweep, with the library compiled so: exit code, and records by case, precision and variant."""
    library = folder / "mine.so"
    subprocess.run(
        ["c++", "-O2", "-std=c++17", "-shared", "-fPIC", *options, SOURCE, "-o", library], check=True
    )
    (folder / "custom.yaml").write_text(sweep)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "matrix", "run", "-c", "custom.yaml", "--backend", "venv"),
            *("--quiet", "--json", "--select", 'not startswith(subject, "Relu/size_")'),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, {
        (c["workload"]["subject"], c["workload"]["precision"], c["workload"]["variant"]): c
        for c in json.loads(done.stdout)["cells"]
    }


def own(records: Records, precision: str) -> list[dict[str, Any]]:
    found = [r for (_, p, variant), r in records.items() if variant == "candidate:mine" and p == precision]
    assert found
    return found


def test_a_right_library_passes_in_its_type_and_takes_no_other(tmp_path: Path) -> None:
    code, records = run(tmp_path)
    assert {r["state"] for r in own(records, "fp32")} == {"ok"}, [r["reason"] for r in own(records, "fp32")]
    assert {r["effective"]["candidate"] for r in own(records, "fp32")} == {"mine"}
    others = own(records, "fp64")
    assert {r["state"] for r in others} == {"unsupported"}
    assert {r["reason"]["text"] for r in others} == {"of.mine::Relu takes no tensor(double)"}
    assert code == 0


def test_a_library_that_leaks_is_caught(tmp_path: Path) -> None:
    code, records = run(tmp_path, "-DSLOPE=0.01f")
    assert code == 1
    wrong = {r["workload"]["subject"]: r for r in own(records, "fp32") if r["state"] == "incorrect"}
    assert wrong["Relu/basic"]["parity"]["worst"], "the worst element, and both values"
    assert all(r["reason"]["text"] for r in wrong.values())


def test_an_operator_that_the_library_lacks_fails_with_its_name(tmp_path: Path) -> None:
    code, records = run(tmp_path, sweep=SWEEP.replace("of.mine::Relu", "of.mine::Gelu"))
    assert code == 1
    assert {r["state"] for r in own(records, "fp32")} == {"failed"}
    assert all("registers no operator of.mine::Gelu" in r["reason"]["text"] for r in own(records, "fp32"))
