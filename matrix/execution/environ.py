"""The environment variables a worker starts with: the user's, without what would change the measurement."""

from __future__ import annotations

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
