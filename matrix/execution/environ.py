"""The environment variables a worker starts with: the user's, without what would change the measurement."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

#: interpreter switches, coverage and profiler injection: they slow or redirect the worker's Python
REMOVED_PREFIXES = (
    "PYTHON",
    "CONDA_",
    "COVERAGE_",
    "COV_CORE_",
    "PYTEST_",
    "NSYS_",
    "VTUNE_",
    "SCOREP_",
    "KINETO_",
)
REMOVED_NAMES = frozenset(
    {
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
        "__PYVENV_LAUNCHER__",
        "CUDA_INJECTION64_PATH",
        "NVTX_INJECTION64_PATH",
        "ROCP_TOOL_LIB",
        "HSA_TOOLS_LIB",
    }
)
#: kept (an allocator may be preloaded on purpose), but never without being written down
RECORDED_NAMES = ("LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES")
_LONGEST = 300
_MOST_PADDING = 4095  # bytes; a page, which is what decides how the stack lies
_MOST_SEED = 4294967295


def clean(
    inherited: Mapping[str, str], wanted: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The worker's variables, and what to record of how they were made.

    `wanted` is what the environment's backend asks for; it may be a few variables or
    a whole environment: only what differs from `inherited` counts as asked for.
    """
    asked = {name: value for name, value in wanted.items() if inherited.get(name) != value}
    kept: dict[str, str] = {}
    removed: dict[str, str] = {}
    for name, value in inherited.items():
        noise = name.startswith(REMOVED_PREFIXES) or name in REMOVED_NAMES
        (removed if noise else kept)[name] = value
    record = {
        "removed": {name: value[:_LONGEST] for name, value in sorted(removed.items())},
        "preloaded": {name: kept[name][:_LONGEST] for name in RECORDED_NAMES if name in kept},
        "set": {name: value[:_LONGEST] for name, value in sorted(asked.items())},
    }
    return kept | asked, {name: value for name, value in record.items() if value}


def shaken() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Variables that differ from process to process, and what to record of them.

    Where the stack begins and in which order sets are walked depends on them, and speed
    depends on that: what is the same in every process would be taken for the framework's.
    """
    padding, seed = secrets.randbelow(_MOST_PADDING + 1), secrets.randbelow(_MOST_SEED) + 1
    variables = {"FRAMEWORK_MATRIX_PADDING": "." * padding, "PYTHONHASHSEED": str(seed)}
    return variables, {"shaken": {"padding_bytes": str(padding), "hash_seed": str(seed)}}
