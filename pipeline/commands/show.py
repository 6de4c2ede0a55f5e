"""`tfx-estimator show`: prints the resolved declaration, and where each value came from."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.commands.shared import add_declaration

HELP = "print the resolved declaration, and where each value came from"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    parser.add_argument("--json", action="store_true", help="JSON: {declaration, origins, source, file, files}")
    parser.add_argument(
        "--fingerprint",
        action="store_true",
        help="instead, print the modules whose change reruns Transform or the Trainer",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the declaration as YAML, which can be loaded again, or as JSON."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.yaml_text import render

    loaded = load(args.source, args.overrides)
    values = loaded.declaration.dict()
    if args.fingerprint:
        found = _fingerprints(loaded)
        say(json.dumps(found, indent=2) if args.json else _listed(found))
    elif args.json:
        about = {"source": loaded.source, "file": loaded.files[-1], "files": loaded.files}
        fields = {"declaration": values, "origins": loaded.origins, **about}
        say(json.dumps(fields, indent=2))
    else:
        say(render(values, loaded.origins).rstrip("\n"))
    for warning in loaded.warnings:
        say(f"warning: {one_line(warning)}", to_stderr=True)
    return 0


def _fingerprints(loaded: Any) -> dict[str, Any]:
    """Returns hash and modules, with their files, of each component whose cache key covers source code."""
    from tfx_estimator.components.trainer.source import declared_code
    from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source, follow_imports

    declaration, found = loaded.declaration, {}
    for name, code in (("Transform", [declaration.transform.target]), ("Trainer", declared_code(declaration.trainer))):
        modules = {module.name: str(module.file) for module, _ in follow_imports(code, loaded.search_paths)}
        found[name] = {
            "sha256": fingerprint_source(code, loaded.search_paths),
            "modules": dict(sorted(modules.items())),
        }
    return found


def _listed(found: dict[str, Any]) -> str:
    width = max(len(name) for each in found.values() for name in each["modules"])
    lines = []
    for component, each in found.items():
        lines += [f"{component}  {each['sha256']}"]
        lines += [f"  {name:<{width}}  {one_line(file)}" for name, file in each["modules"].items()]
    return "\n".join(lines)
