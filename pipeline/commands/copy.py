"""`tfx-estimator copy`: copies a preset, or a script for TFX's own command line, as a starting point."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfx_estimator.pipeline.platforms.registry import BY_NAME

# The scripts read the declaration's path from it.
_VARIABLE = "TFX_ESTIMATOR_DECLARATION"
_LOCAL = "local_runner"
_SCRIPT = '''"""Compiles a declaration for {title}, by TFX's own command line.

    tfx pipeline compile --engine {engine} --pipeline_path {engine}_runner.py
    tfx pipeline create --engine {engine} --pipeline_path {engine}_runner.py

`tfx-estimator copy {engine}_runner {engine}_runner.py` writes this file.
"""

import os

from tfx_estimator.pipeline.runners import service_runner

# A YAML file of your own, with a section `deploy`.
DECLARATION = os.environ.get("{variable}", "mine.yaml")

if __name__ == "__main__":
    service_runner.main(DECLARATION, "{target}")
'''
_SERVICES = {f"{each.engine}_runner": each for each in BY_NAME.values() if each.engine}
_FIRST = next(iter(_SERVICES.values()))
HELP = "copy a preset, or a script for TFX's own command line, into a file of your own"
EPILOG = f"""\
`tfx-estimator copy {_LOCAL} {_LOCAL}.py` writes the script that TFX's own command line needs; likewise
{" and ".join(_SERVICES)}:

  tfx pipeline create --engine local --pipeline_path {_LOCAL}.py
  tfx pipeline compile --engine {_FIRST.engine} --pipeline_path {_FIRST.engine}_runner.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    scripts = ", ".join([_LOCAL, *_SERVICES])
    parser.add_argument("preset", metavar="PRESET", help=f"a preset's name: see `tfx-estimator presets`; or {scripts}")
    parser.add_argument("file", metavar="FILE", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Writes the preset's or the script's text, header and comments included."""
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import say, write_file

    name = one_line(args.file)
    if script := _script(args.preset):
        text, start = script
        write_file(args.file, text, force=args.force)
        say(f"wrote {name}; name your declaration in it, or in {_VARIABLE}; next: {start} {name}")
        return 0
    check_preset(args.preset)
    write_file(args.file, presets.path(args.preset).read_text(encoding="utf-8"), force=args.force)
    say(f"wrote {name}; next: tfx-estimator run {name}")
    return 0


def _script(name: str) -> tuple[str, str] | None:
    """Returns a script's text, and the command that runs or compiles it; None if there is none of this name."""
    if name == _LOCAL:
        return (Path(__file__).parents[1] / "runners" / f"{_LOCAL}.py").read_text(encoding="utf-8"), "python"
    if (service := _SERVICES.get(name)) is None:
        return None
    text = _SCRIPT.format(title=service.title, engine=service.engine, target=service.name, variable=_VARIABLE)
    return text, f"tfx pipeline compile --engine {service.engine} --pipeline_path"


def check_preset(name: str) -> None:
    """Raises DeclarationError if there is no preset of this name."""
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.config.problems import nearest

    if name not in presets.names():
        near = nearest(name, presets.names())
        todo = f"did you mean `{near}`?" if near else "list them: tfx-estimator presets"
        raise DeclarationError(
            f"there is no preset {name!r}", expected="one of " + ", ".join(presets.names()), todo=todo
        )
