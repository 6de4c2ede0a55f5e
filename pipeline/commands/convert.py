"""`tfx-estimator convert`: converts an Estimator's training, at any step, to a Keras one, with a proof of equality."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from tfx_estimator.pipeline.base.text import one_line

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Declaration, Loaded
    from tfx_estimator.pipeline.convert.canned import conversion as canned_conversion
    from tfx_estimator.pipeline.convert.canned import training
    from tfx_estimator.pipeline.convert.conversion import Converted
    from tfx_estimator.pipeline.convert.source import Source

_RUN_AGAIN = "restore them; or run the pipeline again"
HELP = "convert an Estimator's training to a Keras model and training that continues it; prove that they are equal"
EPILOG = """\
  tfx-estimator convert runs/digits --output converted
  tfx-estimator run converted/new.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a pipeline's folder (its last run), or a run's log folder; with --declaration, a checkpoint from outside "
        "a run, or a folder of checkpoints; with --keep-graph, a SavedModel",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="the folder to make")
    parser.add_argument(
        "--to",
        choices=("keras2", "keras3"),
        default="keras2",
        help="Keras 2, which this project can train further, or Keras 3, as standalone source code (default: keras2)",
    )
    parser.add_argument(
        "--declaration",
        metavar="FILE",
        help="the run's declaration, if its modules are not in the current folder; for a checkpoint "
        "from outside a run, a declaration of its network and data",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="PATH",
        default="",
        help="another checkpoint of the same model, or a folder of checkpoints, such as the model_dir of an Estimator "
        "trained outside a pipeline",
    )
    parser.add_argument(
        "--examples",
        metavar="PATH",
        help="other evaluation examples than the run's: a folder of TFRecord files, or a pattern of their names",
    )
    parser.add_argument(
        "--network",
        metavar="MODULE:FUNCTION",
        help="for a run of a whole model_fn: the function that makes the same network with Keras",
    )
    parser.add_argument(
        "--map",
        metavar="FILE",
        help="YAML that maps regular expressions for tensor names to variables of the Keras model; null omits a tensor",
    )
    parser.add_argument(
        "--keep-graph",
        action="store_true",
        help="write no network: make the exported graph of SOURCE, a run or a SavedModel, a layer that Keras trains",
    )
    parser.add_argument(
        "--answer", metavar="SIGNATURE:OUTPUT", default="", help="with --keep-graph: the output to train"
    )
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Converts, and prints the comparison."""
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.warm_start import WarmStart
    from tfx_estimator.pipeline.run.terminal import quiet
    from tfx_estimator.pipeline.user_source import loader

    # Otherwise the memory of one model after another is not freed.
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
    if args.keep_graph:
        return _keep_graph(args)
    _refuse_others(args, "it is for --keep-graph", "answer")
    _refuse_keras3(args.to)
    output, loaded = _new_folder(args.output), load(args.declaration) if args.declaration else None
    if loaded is not None:
        loaded.make_importable()
    else:
        loader.install([os.getcwd()])
    if WarmStart(checkpoint=os.path.expanduser(args.source)).prefix:
        return _convert_model_dir(args, loaded, output)
    if WarmStart(model=os.path.expanduser(args.source)).prefix:
        raise DeclarationError(
            f"{one_line(args.source)} is a SavedModel, which does not contain the network's code",
            expected="a run; or --keep-graph, which needs no code",
            todo="name the run that exported it; or add --keep-graph, and --examples",
        )
    # Hides what TensorFlow prints.
    with quiet(os.devnull), _user_errors():
        from tfx_estimator.pipeline.convert.canned import training

        canned = training.find(args.source)
    if canned is not None:
        why = f"{canned.name} trained a trainer_fn's Estimator, whose network is generated"
        _refuse_others(args, why, "checkpoint", "examples", "network", "map")
        return _convert_canned(canned, output, args.output, args.to)
    with quiet(os.devnull), _user_errors():
        from tfx_estimator.pipeline.convert.source import find

        source = find(args.source, os.path.expanduser(args.checkpoint))
    return _convert(args, source, loaded, output)


def _convert_model_dir(args: argparse.Namespace, loaded: Optional[Loaded], output: str) -> int:
    """Makes the artifacts that a run would have, and converts a checkpoint."""
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.run.terminal import quiet

    if loaded is None:
        raise DeclarationError(
            f"{one_line(args.source)} is a checkpoint, which contains neither its network nor its data",
            expected="--declaration FILE, with trainer.model and the data",
            todo="write one, and pass it; or name a run of the same model, and the checkpoint by --checkpoint",
        )
    _refuse_others(args, "SOURCE is one", "checkpoint")
    say(f"making the examples of {one_line(args.declaration)} by its pipeline up to Transform")
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        with quiet(os.devnull), _user_errors():
            from tfx_estimator.pipeline.convert.model_dir import find

            source = find(os.path.abspath(os.path.expanduser(args.source)), loaded, folder)
        return _convert(args, source, loaded, output)


def _convert(args: argparse.Namespace, source: Source, loaded: Optional[Loaded], output: str) -> int:
    """Converts the training of a network, and prints the comparison."""
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.run.terminal import quiet

    say(f"converting step {source.step} of {source.run.name}, and training 20 steps of both: about a minute")
    with quiet(os.devnull), _user_errors():
        from tfx_estimator.pipeline.convert.conversion import convert
        from tfx_estimator.pipeline.convert.examples import files_of
        from tfx_estimator.pipeline.convert.guide import read_map
        from tfx_estimator.pipeline.convert.replacement import Replacement

        source = dataclasses.replace(source, examples=files_of(args.examples) if args.examples else ())
        declared = loaded.declaration.trainer if loaded is not None else None
        replacement = Replacement(args.network, declared) if args.network else None
        converted = convert(source, output, args.to, replacement, read_map(args.map) if args.map else None)
    say("\n".join([*_lines(converted), f"wrote         {one_line(args.output)}, at step {source.step}"]))
    if args.to == "keras3":
        return 0
    new = os.path.join(args.output, "new.yaml")
    try:
        if loaded is not None and (home := loaded.search_paths[0]) != os.getcwd():
            _copy_modules(loaded.declaration, args.network, output, home)
        load(new)
    except DeclarationError as error:
        say(f"{one_line(new)} must be fixed before it can run:\n{error}", to_stderr=True)
    else:
        say(f"continue by   tfx-estimator run {one_line(new)}")
    return 0


def _convert_canned(found: training.Training, output: str, named: str, to: str) -> int:
    """Converts a trainer_fn's Estimator, and prints the comparison."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.run.terminal import quiet

    say(f"converting step {found.step} of {found.name}, a trainer_fn's Estimator, and training 20 steps of both")
    with quiet(os.devnull), _user_errors():
        from tfx_estimator.pipeline.convert.canned.training import convert

        converted = convert(found, output, to)
    lines = [*_lines(converted), f"wrote         {one_line(named)}, at step {found.step}: see its network.py"]
    written = converted.run_fn
    module = one_line(os.path.join(named, f"{written.name}.py"))
    lines.append(f"continue by   the run_fn of {module}" if written.name else f"no run_fn     {written.why}")
    say("\n".join(lines))
    return 0


def _keep_graph(args: argparse.Namespace) -> int:
    """Keeps the exported graph, and prints the comparison and the limits."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.run.terminal import quiet

    _refuse_others(
        args, "--keep-graph takes the graph as it was exported", "checkpoint", "declaration", "network", "map", "to"
    )
    output = _new_folder(args.output)
    say(f"keeping the graph that {one_line(args.source)} exported, and training a step of it")
    whole = "a complete SavedModel, with TensorFlow's built-in operations only"
    with quiet(os.devnull), _user_errors(whole, "copy it again; or convert the network"):
        from tfx_estimator.pipeline.convert.graph.conversion import keep

        kept = keep(args.source, output, args.examples or "", args.answer)
    say("\n".join([*kept.lines(), f"wrote         {one_line(args.output)}: see its network.py"]))
    return 0


def _refuse_others(args: argparse.Namespace, why: str, *names: str) -> None:
    """Refuses options without effect on this conversion."""
    from tfx_estimator.pipeline.base.errors import DeclarationError

    plain = {"to": "keras2", "checkpoint": "", "answer": ""}
    if given := [f"--{name}" for name in names if getattr(args, name) != plain.get(name)]:
        raise DeclarationError(f"{', '.join(given)}: {why}", expected="only the other options", todo="leave it out")


@contextlib.contextmanager
def _user_errors(
    expected: str = "the run's artifacts, and the module of trainer.model, as they were when it trained",
    todo: str = _RUN_AGAIN,
) -> Iterator[None]:
    """Turns errors from the user's code or damaged files into a UserCodeError without a traceback."""
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError, UserCodeError
    from tfx_estimator.pipeline.base.text import first_line

    try:
        yield
    except (OSError, TfxEstimatorError):
        raise
    except Exception as error:
        if isinstance(error, NotImplementedError) and todo == _RUN_AGAIN:
            todo = f"write get_config of each of your own layers, which model.keras needs; else {todo}"
        raise UserCodeError(
            f"the training cannot be converted: {type(error).__name__}: {first_line(error)}",
            expected=expected,
            todo=todo,
        ) from error


def _refuse_keras3(to: str) -> None:
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.base.stack import stacks

    here = stacks.current()
    if to == "keras3" and not here.has_keras_3:
        raise DeclarationError(
            f"--to keras3: the stack {here.name} has no Keras 3",
            expected=f"the stack {stacks.TODAY.name}, which converts the runs of {here.name} too",
            todo="run this command there, on this folder",
        )


def _copy_modules(declaration: Declaration, network: str | None, output: str, home: str) -> None:
    """Copies the modules of a declaration in another folder."""
    from tfx_estimator.pipeline.config.known import expand
    from tfx_estimator.pipeline.config.paths import is_path, is_tfds_name
    from tfx_estimator.pipeline.convert.new_declaration import copy_modules

    targets = [expand("trainer.model", network) if network else declaration.trainer.target]
    if declaration.transform.module_file is None:
        targets.append(declaration.transform.target)
    dataset = declaration.data.dataset
    if ":" in dataset and not is_path(dataset) and not is_tfds_name(dataset):
        targets.append(dataset)
    copy_modules(output, targets, home)


def _new_folder(name: str) -> str:
    """Returns the absolute path of a folder that must not exist yet; makes its parent."""
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.base.files import writing
    from tfx_estimator.pipeline.config.paths import reject_address

    reject_address(name, "--output")
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.lexists(path):
        raise DeclarationError(f"{one_line(name)} exists", expected="a folder to make", todo="choose another name")
    with writing(name):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _lines(converted: Converted | canned_conversion.Converted) -> list[str]:
    from tfx_estimator.pipeline.convert.steps import STEPS

    proof = converted.proof
    kinds = [each.tensor.kind for each in converted.placed]
    found = ", ".join(
        f"{kinds.count(kind)} {kind}{'s' if kinds.count(kind) > 1 else ''}" for kind in dict.fromkeys(kinds)
    )
    rows = [(f"{proof.compared}, {name}", value) for name, value in proof.logits.items()]
    rows += [(f"{name} after {STEPS} more steps", value) for name, value in proof.next_steps.items()]
    rounding = f"left out      {', '.join(proof.rounding)}: rounding alone moves them"
    served = f"served        other values of {len(proof.served)} weights than those trained, such as moving averages"
    served += "\n              model.keras has them; the training goes on without averaging"
    return [
        f"converted     {found}",
        f"compared      {proof.examples} evaluation examples: {proof.classes} with another class",
        *(
            f"{'largest difference' if not index else '':20}{name:40}{value:.3g}"
            for index, (name, value) in enumerate(rows)
        ),
        *([served] if proof.served else []),
        *([rounding] if proof.rounding else []),
    ]
