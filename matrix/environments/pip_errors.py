"""Turn what a failed pip run printed into one reason: a code, and a sentence with what to do.

pip has no structured errors. The patterns are those of pip 23 to 26; each is tested against
runs of the real pip. What no pattern knows is `build_error` with pip's last error line, and
the log is always named.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from matrix.environments.interpreters import Interpreter, running
from matrix_adapters.protocol import Reason

_NO_MATCH = re.compile(
    r"Could not find a version that satisfies the requirement (?P<wanted>.+?)(?: \(from (?!versions).*?\))? "
    r"\(from versions: (?P<versions>.*?)\)\s*$",
    re.MULTILINE,
)
_UNREACHABLE = re.compile(
    r"connection broken by|Could not fetch URL|Failed to establish a new connection|"
    r"Name or service not known|Temporary failure in name resolution|"
    r"Max retries exceeded|Connection to .* timed out|Read timed out|"
    r"There was a problem confirming the ssl certificate|ProxyError|"
    r"HTTP error \d+|\d{3} (?:Client|Server) Error"
)
_NO_UPLOAD_TIMES = re.compile(r"(?P<index>Index \S+|\S+) does not provide upload-time metadata")
_NO_SPACE = re.compile(r"No space left on device(?:: '?(?P<path>[^'\n]+)'?)?|Disk quota exceeded")
_CONFLICT = re.compile(r"Cannot install (?P<who>.+?) because these package versions have conflicting")
_CAUSES = re.compile(r"The conflict is caused by:\n(?P<lines>(?: {4}.+\n)+)")
_REQUIRES_PYTHON = re.compile(r"(?P<version>[^\s;]+) Requires-Python (?P<need>[^;\n]+)")
_ONE_REQUIRES_PYTHON = re.compile(
    r"Package '?(?P<package>[^'\s]+)'? requires a different Python: \S+ not in '(?P<need>[^']+)'"
)
_NOT_A_WHEEL_HERE = re.compile(r"(?P<file>\S+\.whl) is not a supported wheel on this platform")
_LINK = re.compile(r"Skipping link: none of the wheel's tags.*?(?P<file>[^/\s]+\.whl)(?=[#\s])")
_SOURCE_BUILD = re.compile(
    r"× (?:Getting requirements to build wheel|Preparing metadata|Building wheel|python setup\.py|"
    r"Running setup\.py).*did not run successfully|Failed building wheel for |Failed to build "
)
_SOURCE_PACKAGE = re.compile(
    r"Failed (?:building wheel for|to build) '?(?P<name>[A-Za-z0-9._-]+)|"
    r"(?:Collecting|Processing|Downloading) (?:\S*/)?(?P<last>[A-Za-z0-9._-]+)"
)
_LAST_WORDS = re.compile(r"^\W*(?P<line>.*)\n\s*│?\s*\[end of output\]", re.MULTILINE)


def explain(
    output: str, *, what: str, log: Path, links: str = "", python: Interpreter | None = None
) -> Reason:
    """The reason for a failed `what`. `links`: the verbose output of looking up what was not found.

    `python` is the one that was installed for; None: the running one.
    """
    see = f" Full output: {log}"
    python = python or running()
    found = (
        _disk_full(output)
        or _no_upload_times(output)
        or _conflict(output)
        or _wrong_python(output, links, python)
        or _source_build(output, python)
        or _unreachable(output)
        or _no_such_version(output)
        or _build_error(output, what)
    )
    return Reason(code=found[0], text=found[1] + see)


def not_found(output: str) -> str:
    """The requirement that no distribution matched; "" where that was not the trouble."""
    match = _NO_MATCH.search(output)
    return match["wanted"].strip() if match else ""


def unreachable(output: str) -> bool:
    """Whether pip could not get an answer from an index."""
    return _UNREACHABLE.search(output) is not None


def _disk_full(output: str) -> tuple[str, str] | None:
    match = _NO_SPACE.search(output)
    if not match:
        return None
    where = f" at {match['path'].strip()}" if match.groupdict().get("path") else ""
    return "disk_full", (
        f"disk full{where}: free some space (`matrix clean` lists what the cache holds), "
        "or set FRAMEWORK_MATRIX_HOME (and TMPDIR) to a larger disk."
    )


def _no_upload_times(output: str) -> tuple[str, str] | None:
    match = _NO_UPLOAD_TIMES.search(output)
    if not match:
        return None
    return "no_upload_times", f"{match['index']} does not say when its files were published."


def _conflict(output: str) -> tuple[str, str] | None:
    match = _CONFLICT.search(output)
    if not match:
        return None
    causes = _CAUSES.search(output)
    lines = [line.strip() for line in causes["lines"].splitlines()] if causes else []
    detail = "; ".join(lines) if lines else match["who"]
    return "resolver_conflict", (
        f"no set of versions satisfies all requirements: {detail}. "
        "Loosen one of these pins: a change of this comparison, the catalog entry, its constraints or your "
        "pip configuration."
    )


def _wrong_python(output: str, links: str, python: Interpreter) -> tuple[str, str] | None:
    """The version exists, but not for this Python or platform."""
    here = f"{python.title} on {sys.platform} {platform.machine()}"
    found = None
    if other := _ONE_REQUIRES_PYTHON.search(output):
        found = _other_python(other["package"], other["need"], python)
    elif file := _NOT_A_WHEEL_HERE.search(output):
        found = f"{Path(file['file']).name} is no wheel for {here}. {_CHOOSE_PYTHON}"
    elif wanted := not_found(output):
        skipped = _REQUIRES_PYTHON.finditer(f"{output}\n{links}")
        other = next((match for match in skipped if _satisfies(wanted, match["version"])), None)
        tags = _other_tags(wanted, links, python)
        if other:
            found = _other_python(f"{_name(wanted)} {other['version']}", other["need"].strip(), python)
        elif tags:
            found = f"{wanted} has no wheel for {here}; it has them for {', '.join(tags)}. {_CHOOSE_PYTHON}"
    return ("no_wheel", found) if found else None


def _no_such_version(output: str) -> tuple[str, str] | None:
    match = _NO_MATCH.search(output)
    if not match:
        return None
    wanted, versions = match["wanted"].strip(), match["versions"].strip()
    if versions in ("", "none"):
        return "no_such_version", (
            f"no distribution called {_name(wanted)} was found: check the name, and that the index that "
            "pip is configured for offers it."
        )
    newest = ", ".join(versions.split(", ")[-5:])
    return "no_such_version", f"{wanted} does not exist; the newest that fit this Python: {newest}."


def _unreachable(output: str) -> tuple[str, str] | None:
    if not unreachable(output):
        return None
    host = re.search(r"host='([^']+)'|Looking in indexes: (\S+)", output)
    where = next((part.rstrip(",") for part in host.groups() if part), "") if host else ""
    return "index_unreachable", (
        f"the package index {where} does not answer (tried twice): check the network, the proxy and "
        "`pip config list`."
    ).replace("  ", " ")


def _source_build(output: str, python: Interpreter) -> tuple[str, str] | None:
    """No wheel fitted, so pip tried to build one, and the package's own build failed."""
    failed = _SOURCE_BUILD.search(output)
    if not failed:
        return None
    named = [m["name"] for m in _SOURCE_PACKAGE.finditer(output) if m["name"]]
    before = [m["last"] for m in _SOURCE_PACKAGE.finditer(output[: failed.start()]) if m["last"]]
    package = (named or before or ["a package"])[-1]
    words = _LAST_WORDS.search(output)
    said = f" ({words['line'].strip()[:200]})" if words and words["line"].strip() else ""
    return "build_error", (
        f"{package} had to be built from source, since no wheel of it fits {python.title} on "
        f"{platform.machine()}, and that failed{said}. Ask for a version with a wheel, or use another Python."
    )


def _build_error(output: str, what: str) -> tuple[str, str]:
    errors = [line.strip() for line in output.splitlines() if re.match(r"\s*(ERROR|error|Error)\b", line)]
    last = errors[-1] if errors else (output.strip().splitlines() or ["it printed nothing"])[-1].strip()
    return "build_error", f"{what} failed: {last[:300]}."


_CHOOSE_PYTHON = "Run with another Python, or ask for a version that supports this one."


def _other_python(package: str, need: str, python: Interpreter) -> str:
    return f"{package} needs Python {need}, this is {python.version}. {_CHOOSE_PYTHON}"


def _other_tags(wanted: str, links: str, python: Interpreter) -> list[str]:
    """Interpreter tags (platform tags where the interpreter fits) of the wheels that were passed over."""
    mine = python.tag
    machine = platform.machine().lower()
    interpreters: set[str] = set()
    platforms: set[str] = set()
    for match in _LINK.finditer(links):
        try:
            name, version, _, tags = parse_wheel_filename(match["file"])
        except InvalidWheelFilename:
            continue
        if name != canonicalize_name(_name(wanted)) or not _satisfies(wanted, str(version)):
            continue
        for tag in tags:
            interpreters.add(tag.interpreter)
            if tag.interpreter in (mine, "py3") or tag.abi == "abi3":
                platforms.add(tag.platform)
    if platforms:
        return sorted(platforms, key=lambda tag: (not tag.endswith(machine), tag))[:6]
    return sorted(interpreters, key=lambda tag: [int(n) for n in re.findall(r"\d+", tag)])


def _satisfies(wanted: str, version: str) -> bool:
    try:
        return Requirement(wanted).specifier.contains(Version(version), prereleases=True)
    except (InvalidRequirement, ValueError):
        return False


def _name(wanted: str) -> str:
    try:
        return Requirement(wanted).name
    except InvalidRequirement:
        return wanted
