"""`tfx-estimator compile`: the declared pipeline as a file for a service that runs pipelines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.commands.arguments import add_declaration
from tfx_estimator.pipeline.targets import ALL_TARGETS, KUBEFLOW_V2, TFJOB, VERTEX
from tfx_estimator.pipeline.text import one_line

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Loaded
    from tfx_estimator.pipeline.runners.compiling import Compiled

HELP = "compile the declared pipeline for Vertex AI Pipelines, Kubeflow Pipelines or the Kubeflow training operator"
EPILOG = """\
No account and no network are needed, unless data.data_dir is an address. The declaration's section `deploy` says where
the pipeline will run; `validate --target` lists what is missing.

  tfx-estimator compile mine.yaml --target vertex --output mine.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    parser.add_argument("--target", choices=ALL_TARGETS, required=True, help="the service")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the file to write (default: the pipeline's name, .json for vertex, else .yaml)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Compiles, and writes the user's own modules beside the file."""
    from tfx_estimator.pipeline.commands.output import check_file, say, writing
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.files import write_whole

    loaded = load(args.source, args.overrides, args.target)
    output = args.output or f"{loaded.declaration.name}.{'json' if args.target == VERTEX else 'yaml'}"
    file = check_file(output, force=args.force)
    compiled = _compile(loaded, args.target)
    for packed in compiled.modules:
        # Named by its contents: one that is there is the same.
        with writing(str(file.parent / packed.name)):
            (file.parent / packed.name).write_bytes(packed.data)
    with writing(output):
        write_whole(file, compiled.text)
    for line in _said(loaded, args.target, file, compiled):
        say(one_line(line))
    for warning in loaded.warnings:
        say(f"warning: {one_line(warning)}", to_stderr=True)
    return 0


def _compile(loaded: Loaded, target: str) -> Compiled:
    from tfx_estimator.pipeline.runners.compiling import compile_declaration

    return compile_declaration(loaded, target)


def _said(loaded: Loaded, target: str, file: Path, compiled: Compiled) -> list[str]:
    from tfx_estimator.components.trainer.tfjob.manifest import job_name

    lines = [f"wrote {file}: {loaded.declaration.name} for {target}"]
    for packed in compiled.modules:
        lines.append(f"wrote {file.parent / packed.name}: your own modules, {', '.join(packed.modules)}")
        lines.append(f"    copy it, before the pipeline runs, to {compiled.modules_uri}/{packed.name}")
    deploy = loaded.declaration.deploy
    if target == VERTEX and deploy is not None:
        account = f", as {deploy.service_account}" if deploy.service_account else ""
        lines.append(f"    submit it to project {deploy.project}, region {deploy.region}{account}")
    if target == TFJOB:
        space = f" --namespace {deploy.tfjob.namespace}" if deploy and deploy.tfjob.namespace else ""
        lines.append(f"    start it: kubectl apply --filename {file}")
        lines.append(f"    see it run: kubectl logs --follow {job_name(loaded.declaration.name)}-chief-0{space}")
        lines.append("    note: its chief runs every step, with the resources of deploy.tfjob.replicas.chief")
    if target == KUBEFLOW_V2:
        lines.append(
            "    note: no model is compared with an earlier one, and evaluator.max_accuracy_drop has no effect: "
            "Kubeflow Pipelines 2 has no resolvers"
        )
    if loaded.declaration.data.data_dir is None and loaded.declaration.data.dataset != "digits":
        who = "the chief" if target == TFJOB else "the step TfdsExampleGen"
        lines.append(f"    note: data.data_dir is null: {who} downloads the data set by itself")
    return lines
