"""`tfx-estimator copy`: a preset, or a script for TFX's own command line, as the start of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfx_estimator.pipeline.platforms.registry import BY_NAME

HELP = "copy a preset, or a script for TFX's own command line, into a file of your own"
# Each script reads the declaration's name from it.
_VARIABLE = "TFX_ESTIMATOR_DECLARATION"
# Each script's file, and the command that runs or compiles it.
_SCRIPTS = {
    "local_runner": ("runners/local_runner.py", "python {name}"),
    **{
        f"{each.engine}_runner": (
            f"platforms/{each.folder}/runner.py",
            f"tfx pipeline compile --engine {each.engine} --pipeline_path {{name}}",
        )
        for each in BY_NAME.values()
        if each.engine
    },
}

EPILOG = f"""\
`tfx-estimator copy local_runner local_runner.py` writes the script that TFX's own command line asks for; likewise
{" and ".join([*_SCRIPTS][1:])}:

  tfx pipeline create --engine local --pipeline_path local_runner.py
  {[*_SCRIPTS.values()][1][1].format(name="NAME.py")}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "preset", metavar="PRESET", help=f"a preset's name: see `tfx-estimator presets`; or {', '.join(_SCRIPTS)}"
    )
    parser.add_argument("file", metavar="FILE", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Writes the preset's or the script's text, header and comments included."""
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.output import say, write_file

    name = one_line(args.file)
    if args.preset in _SCRIPTS:
        script = Path(__file__).parents[1] / _SCRIPTS[args.preset][0]
        write_file(args.file, script.read_text(encoding="utf-8"), force=args.force)
        todo = _SCRIPTS[args.preset][1].format(name=name)
        say(f"wrote {name}; name your declaration in it, or in {_VARIABLE}; next: {todo}")
        return 0
    check_preset(args.preset)
    write_file(args.file, presets.path(args.preset).read_text(encoding="utf-8"), force=args.force)
    say(f"wrote {name}; next: tfx-estimator run {name}")
    return 0


def check_preset(name: str) -> None:
    """Refuses a name that is no preset's.

    Args:
        name: What the user wrote.

    Raises:
        DeclarationError: There is no such preset.
    """
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.config.problems import nearest

    if name not in presets.names():
        near = nearest(name, presets.names())
        todo = f"did you mean `{near}`?" if near else "list them: tfx-estimator presets"
        raise DeclarationError(
            f"there is no preset {name!r}", expected="one of " + ", ".join(presets.names()), todo=todo
        )
