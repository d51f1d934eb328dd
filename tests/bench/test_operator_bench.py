"""What the operator path adds to a framework: a large product, and the smallest call there is.

Both are measured in one process, turn by turn, against a loop written by hand over the framework's
own API with the same boundary (host arrays in, host arrays out). Run with `-s` to see the figures.
"""

from __future__ import annotations

import functools
import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix import catalog, paths
from matrix.environments.base import BuiltEnvironment
from matrix.environments.venv import VenvBackend
from matrix.records import Environment
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec, plain

pytestmark = pytest.mark.real

GEMM_SHARE = 1.03
CALL_NS = 500.0
ATTEMPTS = 5  # a shared machine may be busy in one of them

#: runs in the framework's own interpreter: medians of both loops, nanoseconds a call
SCRIPT = """
    import json, statistics, sys, time
    from pathlib import Path
    import numpy as np
    from matrix_adapters import clock
    from matrix_adapters.operators import case_folder
    from matrix_adapters.operators.batch import spec_of
    from matrix_adapters.protocol import Task, TaskKind

    framework, folder, calls, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    task = Task(kind=TaskKind.MEASURE, framework=framework, adapter=f"matrix_adapters.{framework}", threads=1)
    adapter = __import__(task.adapter, fromlist=["Adapter"]).Adapter(task)
    adapter.start()
    case = case_folder.read_case(folder)
    given = case_folder.feed(folder)
    runner = adapter.load(spec_of(case), {"operator": folder})
    feed = runner.prepare(given)
    runner.compile(feed)
    loop = clock.loop_of(runner)
    arrays = [feed[spec.name] for spec in case.inputs]

    if framework == "pytorch":
        import torch

        borrow = torch.from_numpy
        op = {"Relu": torch.relu, "MatMul": torch.matmul}[case.nodes[0].op]
        if len(arrays) == 1:
            def by_hand(n, x=arrays[0]):
                for _ in range(n):
                    y = {"Y": op(borrow(x)).numpy()}
                return y
        else:
            def by_hand(n, a=arrays[0], b=arrays[1]):
                for _ in range(n):
                    y = {"Y": op(borrow(a), borrow(b)).numpy()}
                return y
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        def by_hand(n, feed=dict(feed)):
            for _ in range(n):
                y = {"Y": session.run(["Y"], feed)[0]}
            return y

    def timed(call):
        start = time.perf_counter_ns()
        call()
        return (time.perf_counter_ns() - start) / calls

    same = np.array_equal(loop(feed, 1)["Y"], by_hand(1)["Y"])
    ours, theirs = [], []
    for turn in range(rounds):
        pair = [(ours, lambda: loop(feed, calls)), (theirs, lambda: by_hand(calls))]
        for kept, call in pair if turn % 2 else reversed(pair):
            kept.append(timed(call))
    print(json.dumps({"same": bool(same), "ours": statistics.median(ours), "theirs": statistics.median(theirs)}))
"""

GEMM = OperatorCase(
    name="MatMul/gemm_2048",
    dtype="float32",
    nodes=(Node(op="MatMul", inputs=("A", "B"), outputs=("Y",)),),
    inputs=(
        TensorSpec(name="A", dtype="float32", shape=(2048, 2048)),
        TensorSpec(name="B", dtype="float32", shape=(2048, 2048)),
    ),
    outputs=("Y",),
    opset=13,
)
RELU = OperatorCase(
    name="Relu/size_1",
    dtype="float32",
    nodes=(Node(op="Relu", inputs=("X",), outputs=("Y",)),),
    inputs=(TensorSpec(name="X", dtype="float32", shape=(1,)),),
    outputs=("Y",),
    opset=14,
)


@pytest.fixture(scope="module")
def built() -> Callable[[str], BuiltEnvironment]:
    """framework name -> its default version's CPU environment."""
    facts = catalog.load()
    backend = VenvBackend(facts.frameworks, paths.home())

    @functools.cache
    def build(framework: str) -> BuiltEnvironment:
        entry = facts.frameworks[framework]
        return backend.build(
            Environment(
                framework=framework,
                version=entry.version_for("cpu"),
                hardware="cpu",
                build=entry.hardware["cpu"].build,
            )
        )

    return build


@pytest.fixture(scope="module")
def folders(built: Callable[[str], BuiltEnvironment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both cases, as the oracle leaves them."""
    home = tmp_path_factory.mktemp("cases")
    code = "import json, sys; from pathlib import Path; from matrix_adapters.operators import oracle\n"
    code += "for name, case in json.loads(sys.argv[1]).items(): oracle.prepare(case, Path(sys.argv[2]) / name)"
    cases = {"gemm": plain(GEMM), "relu": plain(RELU)}
    _python(built("pytorch"), code, json.dumps(cases), str(home))
    return home


@pytest.mark.parametrize("framework", ["pytorch", "onnxruntime"])
def test_a_large_product_takes_what_a_loop_by_hand_takes(
    built: Callable[[str], BuiltEnvironment],
    folders: Path,
    framework: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ratios = []
    for _ in range(ATTEMPTS):
        found = _measure(built(framework), framework, folders / "gemm", calls=1, rounds=11)
        assert found["same"]
        ratios.append(found["ours"] / found["theirs"])
        if ratios[-1] < GEMM_SHARE:
            break
    with capsys.disabled():
        print(f"\n  {framework}: GEMM of 2048 takes {min(ratios):.4f} of the loop by hand")
    assert min(ratios) < GEMM_SHARE


@pytest.mark.parametrize("framework", ["pytorch", "onnxruntime"])
def test_the_smallest_call_costs_less_than_half_a_microsecond_more(
    built: Callable[[str], BuiltEnvironment],
    folders: Path,
    framework: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    added = []
    for _ in range(ATTEMPTS):
        found = _measure(built(framework), framework, folders / "relu", calls=2000, rounds=41)
        assert found["same"]
        added.append(found["ours"] - found["theirs"])
        if added[-1] < CALL_NS:
            break
    with capsys.disabled():
        print(f"\n  {framework}: a Relu of one element takes {min(added):.0f} ns more ({found['theirs']:.0f} ns)")
    assert min(added) < CALL_NS


def _measure(
    environment: BuiltEnvironment, framework: str, folder: Path, *, calls: int, rounds: int
) -> dict[str, Any]:
    code = textwrap.dedent(SCRIPT)
    text = _python(environment, code, framework, str(folder), str(calls), str(rounds))
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


def _python(environment: BuiltEnvironment, code: str, *arguments: str) -> str:
    """What a script prints in the environment's own interpreter, with our worker sources."""
    done = subprocess.run(
        [str(environment.python), "-P", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**environment.environ(), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
