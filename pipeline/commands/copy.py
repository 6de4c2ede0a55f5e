"""`tfx-estimator copy`: a preset as the start of one's own declaration."""

from __future__ import annotations

import argparse

HELP = "copy a preset into a file of your own"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("preset", metavar="PRESET", help="a preset's name: see `tfx-estimator presets`")
    parser.add_argument("file", metavar="FILE", help="the YAML file to write")
    parser.add_argument("--force", action="store_true", help="replace FILE where it exists")


def run(args: argparse.Namespace) -> int:
    """Writes the preset's text, header and comments included."""
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.commands.output import write_file

    check_preset(args.preset)
    write_file(args.file, presets.path(args.preset).read_text(encoding="utf-8"), force=args.force)
    print(f"wrote {args.file}; next: tfx-estimator run {args.file}")
    return 0


def check_preset(name: str) -> None:
    """Refuses a name that is no preset's.

    Args:
        name: What the user wrote.

    Raises:
        DeclarationError: There is no such preset.
    """
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.config.problems import nearest
    from tfx_estimator.pipeline.errors import DeclarationError

    if name not in presets.names():
        near = nearest(name, presets.names())
        todo = f"did you mean `{near}`?" if near else "list them: tfx-estimator presets"
        raise DeclarationError(
            f"there is no preset {name!r}", expected="one of " + ", ".join(presets.names()), todo=todo
        )
