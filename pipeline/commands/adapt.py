"""`tfx-estimator adapt`: makes a pipeline that TFX compiled run on Kubeflow Pipelines 2."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "make your own pipeline, which TFX compiled, run on Kubeflow Pipelines 2"
EPILOG = """\
It takes the output of TFX's KubeflowV2DagRunner, for any pipeline, and starts its steps by tfx-estimator's entry point,
which the image needs: pip install tfx-estimator. In Python, tfx_estimator.KubeflowV2Runner does both.

  tfx-estimator adapt pipeline.json --output pipeline.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("file", metavar="FILE", help="the compiled pipeline: JSON or YAML")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the file to write: JSON if its name ends with .json, else YAML (default: NAME-kubeflow.yaml)",
    )
    parser.add_argument("--force", action="store_true", help="replace the file to write if it exists")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Writes the adapted pipeline."""
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import say, write_file
    from tfx_estimator.pipeline.platforms.rehearsal.job import read_documents
    from tfx_estimator.pipeline.platforms.services import adapt
    from tfx_estimator.pipeline.runners.compiling import text_of

    output = args.output or f"{Path(args.file).stem}-kubeflow.yaml"
    whole, *others = read_documents(args.file)
    spec, notes = adapt(whole)
    write_file(output, text_of([spec, *others], output), force=args.force)
    for line in (f"wrote {output}", *(f"    {note}" for note in notes or ["nothing had to be adapted"])):
        say(one_line(line))
    return 0
