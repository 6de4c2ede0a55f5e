"""Derives the image's lock file from the package's: without packages for notebooks, and with TensorFlow for CPUs.

echo tensorflow-cpu==2.21.0 | uv pip compile - --no-deps --generate-hashes … | python requirements/image_lock.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

from check_lock import LOCK, REQUIREMENTS, ROOT, STACK, cut_off, declared
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tfx_estimator.pipeline.base.installed import LEFT_OUT

IMAGE_LOCK = Path(__file__).resolve().parent / f"{STACK}-image.lock"
REPLACED, REPLACEMENT = "tensorflow", "tensorflow-cpu"


def entries(text: str) -> dict[str, str]:
    """Returns the entries of a lock file by canonical package name."""
    lines = re.findall(r"^([\w.-]+)(==.+\n(?:[ #].*\n?)*)", text, re.MULTILINE)
    return {canonicalize_name(name): name + rest for name, rest in lines}


def reached(requirements: list[Requirement], without: Collection[str]) -> set[str]:
    """Returns the packages that requirements depend on, without those that only `without` depends on."""
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if name in without or (name, extra) in seen:
                continue
            seen.add((name, extra))
            below = [Requirement(line) for line in metadata.requires(name) or []]
            waiting += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def image_lock(lock: str, replacement: str) -> str:
    """Returns the image's lock file, from the package's and the entry of TensorFlow for CPUs."""
    kept = reached(declared(ROOT / "setup.py", *REQUIREMENTS), LEFT_OUT)
    found = {name: entry for name, entry in entries(lock).items() if name in kept and name != REPLACED}
    found |= {name: entry for name, entry in entries(replacement).items() if name == REPLACEMENT}
    return "".join(found[name] for name in sorted(found))


def problems() -> list[str]:
    """Returns the problems of the existing file."""
    lock, text = LOCK.read_text(), IMAGE_LOCK.read_text() if IMAGE_LOCK.exists() else ""
    wanted = re.match(r"[^\s;\\]+", entries(lock)[REPLACED]).group().replace(REPLACED, REPLACEMENT)  # type: ignore[union-attr]
    found = [] if text == image_lock(lock, text) else ["it is not derived from the present lock file of the package"]
    return found + cut_off(text) + ([] if wanted in text else [f"{wanted} is missing"])


if __name__ == "__main__":
    IMAGE_LOCK.write_text(image_lock(LOCK.read_text(), sys.stdin.read()))
