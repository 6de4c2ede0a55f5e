"""Checks the lock files against setup.py, without a network.

It walks from the requirements of setup.py through the metadata of the installed packages. Every requirement on the way
must be pinned to a version that satisfies it, and every pin must be needed, hashed and installed at that version. Both
lock files are compared with the environment, so they have the same versions. The image's is derived from one of them.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tfx_estimator.pipeline.base.stack import stacks

ROOT = Path(__file__).resolve().parents[1]
# The running environment's.
STACK = stacks.current().name
LOCK = ROOT / "requirements" / f"{STACK}.lock"
DEV_LOCK = ROOT / "requirements" / f"{STACK}-dev.lock"
REQUIREMENTS = (
    "REQUIREMENTS",
    "PIPELINE_REQUIREMENTS",
    f"{STACK.replace('.', '_').replace('tfx', 'TFX_').upper()}_REQUIREMENTS",
)
ADDRESS = re.compile(r"\w+://|^\s*--?(?:i|index-url|extra-index-url|find-links|f)\b", re.MULTILINE)


def declared(setup: Path, *names: str) -> list[Requirement]:
    """Reads the named requirement lists, which are literals, of a setup.py without running it."""
    lists = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(setup.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List)
    }
    return [Requirement(line) for name in names for line in lists[name]]


def pinned(text: str) -> dict[str, str]:
    """Returns the pinned version of every package, by canonical name, whose marker holds for this Python."""
    found = map(Requirement, re.findall(r"^[\w.-]+==[^\\\n]+", text, re.MULTILINE))
    return {
        canonicalize_name(each.name): next(iter(each.specifier)).version
        for each in found
        if each.marker is None or each.marker.evaluate()
    }


def cut_off(text: str) -> list[str]:
    """Returns a line for each entry that ends with a continuation: pip reads the next entry as a part of it."""
    entries = re.split(r"\n(?=\S)", text.strip())
    return [f"cut off: {entry.splitlines()[0]}" for entry in entries if entry.endswith("\\")]


def problems(requirements: list[Requirement], text: str) -> list[str]:
    """Compares requirements with a lock file's text and with the running environment; returns a line per difference."""
    pins = pinned(text)
    found = [f"it names a registry: {match.group().strip()}" for match in ADDRESS.finditer(text)]
    found += cut_off(text)
    for entry in re.split(r"\n(?=\S)", text.strip()):
        if "--hash=sha256:" not in entry:
            found.append(f"no hash: {entry.splitlines()[0]}")
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, "setup.py") for requirement in requirements]
    while waiting:
        requirement, wanted_by = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in pins:
            found.append(f"{requirement} is missing (needed by {wanted_by})")
            continue
        if not requirement.specifier.contains(pins[name], prereleases=True):
            found.append(f"{name}=={pins[name]} does not satisfy {requirement} (needed by {wanted_by})")
        for extra in sorted({"", *requirement.extras}):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                lines = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                found.append(f"{name}=={pins[name]} is not installed")
                continue
            below = [Requirement(line) for line in lines]
            waiting += [(r, name) for r in below if r.marker is None or r.marker.evaluate({"extra": extra})]
    needed = {name for name, _ in seen}
    found += [f"{name}=={pins[name]} is not needed by setup.py" for name in sorted(set(pins) - needed)]
    for name in sorted(needed & set(pins)):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if installed != pins[name]:
            found.append(f"{name}=={pins[name]}, but {installed} is installed")
    return sorted(set(found))


def main() -> int:
    """Prints the problems; returns 0 if there are none, else 1."""
    wrong = False
    for lock, names in {
        LOCK: REQUIREMENTS,
        DEV_LOCK: (*REQUIREMENTS, "DEV_REQUIREMENTS", "SERVE_REQUIREMENTS"),
    }.items():
        text = lock.read_text()
        found = problems(declared(ROOT / "setup.py", *names), text)
        for line in found:
            print(f"{lock.relative_to(ROOT)}: {line}", file=sys.stderr)
        if not found:
            print(f"{lock.relative_to(ROOT)}: {len(pinned(text))} pins, up to date with setup.py and installed")
        wrong |= bool(found)
    import image_lock  # which imports this module

    for line in image_lock.problems():
        print(f"{image_lock.IMAGE_LOCK.relative_to(ROOT)}: {line}", file=sys.stderr)
        wrong = True
    if wrong:
        print("Run `make lock`, then `make install`.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
