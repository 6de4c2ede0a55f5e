"""`tfx-estimator convert`: converts an Estimator's training, at any step, to a Keras one, with a proof of equality."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from tfx_estimator.model_fn.bridge.convert import KEPT, KERAS2, WAYS, require_keras_3
from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.files import writing
from tfx_estimator.pipeline.base.text import first_line, one_line
from tfx_estimator.pipeline.commands.shared import say

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Declaration, Loaded
    from tfx_estimator.pipeline.convert.source import Source
    from tfx_estimator.pipeline.convert.trainer_fn import Training

GRAPH = "graph"
# Options of the code that --estimator names.
_OF_CODE = ("tf1", "train_files", "eval_files", "schema", "transform")
_RUN_AGAIN = "restore them; or run the pipeline again"
HELP = "convert an Estimator's training to a Keras model and training that continues it; prove that they are equal"
EPILOG = """\
  tfx-estimator convert model_dir --estimator train:made --output converted
  tfx-estimator convert runs/digits --output converted
  tfx-estimator run converted/new.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a pipeline's folder (its last run), or a run's log folder; with --estimator or --declaration, a "
        "checkpoint from outside a run, or a folder of checkpoints: a model_dir; with --to graph, a SavedModel",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="the folder to make")
    parser.add_argument(
        "--to",
        choices=(*WAYS, GRAPH),
        help="Keras 2, which this project can train further, or Keras 3, as standalone source code; kept, with "
        "--estimator: the graph of its training, as a model of either Keras; or graph: the graph that SOURCE, a run or "
        "a SavedModel, has exported, as a layer of Keras 2 (default: keras2; with --estimator, kept for a model_fn, "
        "and for a canned Estimator keras3 where it is installed)",
    )
    parser.add_argument(
        "--estimator",
        metavar="MODULE:FUNCTION",
        help="the function of your code that returns the Estimator, the input_fn of its training and that of its "
        "evaluation, or FILE:trainer_fn of a module file of TFX; needs no pipeline, no declaration and no TFX",
    )
    parser.add_argument("--tf1", action="store_true", help="with --estimator: the code is of TensorFlow 1")
    parser.add_argument(
        "--train-files", metavar="PATTERN", help="for a trainer_fn: files of tf.Examples, transformed if it trained so"
    )
    parser.add_argument(
        "--eval-files", metavar="PATTERN", help="the same, for evaluation (default: those of --train-files)"
    )
    parser.add_argument("--schema", metavar="FILE", help="the schema of a trainer_fn that asks for one, as text")
    parser.add_argument("--transform", metavar="DIR", help="the transform graph of a trainer_fn that asks for one")
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
    parser.add_argument("--answer", metavar="SIGNATURE:OUTPUT", default="", help="with --to graph: the output to train")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Converts, and prints the comparison."""
    from tfx_estimator.pipeline.user_source import loader

    # Otherwise the memory of one model after another is not freed.
    os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
    if args.to == GRAPH:
        return _keep_graph(args)
    _refuse_others(args, "it is for --to graph", "answer")
    if args.estimator:
        return _convert_code(args)
    _refuse_others(args, "it is for --estimator", *_OF_CODE)
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.warm_start import WarmStart

    if args.to == KEPT:
        raise DeclarationError(
            f"--to {KEPT}: {one_line(args.source)} names no code that trains",
            expected="a model_dir, and the code of its Estimator",
            todo="name that by --estimator",
        )
    require_keras_3(args.to)
    args.to = args.to or KERAS2
    output, loaded = _new_folder(args.output), load(args.declaration) if args.declaration else None
    if loaded is not None:
        loaded.make_importable()
    else:
        loader.install([os.getcwd()])
    if WarmStart(checkpoint=os.path.expanduser(args.source)).source:
        return _convert_model_dir(args, loaded, output)
    if WarmStart(model=os.path.expanduser(args.source)).source:
        raise DeclarationError(
            f"{one_line(args.source)} is a SavedModel, which does not contain the network's code",
            expected="a run; or --to graph, which needs no code",
            todo="name the run that exported it; or add --to graph, and --examples",
        )
    with _user_errors():
        from tfx_estimator.pipeline.convert import trainer_fn

        canned = trainer_fn.find(args.source)
    if canned is not None:
        why = f"{canned.name} trained a trainer_fn's Estimator, whose network is generated"
        _refuse_others(args, why, "checkpoint", "examples", "network", "map")
        return _convert_canned(canned, output, args.output, args.to)
    with _user_errors():
        from tfx_estimator.pipeline.convert.source import find

        source = find(args.source, os.path.expanduser(args.checkpoint))
    return _convert(args, source, loaded, output)


def _convert_code(args: argparse.Namespace) -> int:
    """Converts the Estimator that a function of the user's code returns, and prints the comparison."""
    from tfx_estimator.pipeline.base.installed import uncollected
    from tfx_estimator.pipeline.user_source import loader

    _refuse_others(args, "--estimator names code", "checkpoint", "declaration", "examples", "network", "map")
    output, source = _new_folder(args.output), os.path.abspath(os.path.expanduser(args.source))
    module, _, name = args.estimator.rpartition(":")
    folder, module = os.path.split(module)
    loader.install([os.path.abspath(folder)])
    say(f"converting the last checkpoint of {one_line(args.source)}, and training 20 steps of both")
    whole = "a function without arguments, of a module that can be imported here, and batches as it trained on"
    scratch = tempfile.TemporaryDirectory(prefix="tfx-estimator-")
    with _user_errors(whole, "name the code that made the Estimator when it trained"), scratch:
        with uncollected():
            from tfx_estimator.model_fn.bridge.convert import convert, parts
            from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
            from tfx_estimator.pipeline.convert.fn_args import fn_args

            bring_back_estimator(args.tf1)
        function = getattr(importlib.import_module(loader.import_name(module.removesuffix(".py"))), name)
        files, more = (args.train_files, args.eval_files or args.train_files), (args.schema, args.transform)
        given = fn_args(*files, *more, scratch.name) if args.train_files else ()
        proof = convert(*parts(function(*given)), output, args.to, source)
    say("\n".join([*proof.lines(), f"wrote         {one_line(args.output)}: see its network.py"]))
    return 0


def _convert_model_dir(args: argparse.Namespace, loaded: Optional[Loaded], output: str) -> int:
    """Makes the artifacts that a run would have, and converts a checkpoint."""
    if loaded is None:
        raise DeclarationError(
            f"{one_line(args.source)} is a checkpoint, which contains neither its network nor its data",
            expected="--estimator MODULE:FUNCTION, which returns the Estimator and its input_fns; or "
            "--declaration FILE, with trainer.model and the data",
            todo="pass one; or name a run of the same model, and the checkpoint by --checkpoint",
        )
    _refuse_others(args, "SOURCE is one", "checkpoint")
    say(f"making the examples of {one_line(args.declaration)} by its pipeline up to Transform")
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        with _user_errors():
            from tfx_estimator.pipeline.convert.model_dir import find

            source = find(os.path.abspath(os.path.expanduser(args.source)), loaded, folder)
        return _convert(args, source, loaded, output)


def _convert(args: argparse.Namespace, source: Source, loaded: Optional[Loaded], output: str) -> int:
    """Converts the training of a network, and prints the comparison."""
    from tfx_estimator.pipeline.config import load

    say(f"converting step {source.step} of {source.run.name}, and training 20 steps of both: about a minute")
    with _user_errors():
        from tfx_estimator.model_fn.bridge.examples import files_of
        from tfx_estimator.pipeline.convert.conversion import convert
        from tfx_estimator.pipeline.convert.guide import read_map
        from tfx_estimator.pipeline.convert.replacement import Replacement

        source = dataclasses.replace(source, examples=files_of(args.examples) if args.examples else ())
        declared = loaded.declaration.trainer if loaded is not None else None
        replacement = Replacement(args.network, declared) if args.network else None
        proof = convert(source, output, args.to, replacement, read_map(args.map) if args.map else None)
    say("\n".join([*proof.lines(), f"wrote         {one_line(args.output)}, at step {source.step}"]))
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


def _convert_canned(found: Training, output: str, named: str, to: str) -> int:
    """Converts a trainer_fn's Estimator, and prints the comparison."""
    say(f"converting step {found.step} of {found.name}, a trainer_fn's Estimator, and training 20 steps of both")
    with _user_errors():
        from tfx_estimator.pipeline.convert.trainer_fn import convert

        proof, (module, why) = convert(found, output, to)
    lines = [*proof.lines(), f"wrote         {one_line(named)}, at step {found.step}: see its network.py"]
    file = one_line(os.path.join(named, f"{module}.py"))
    lines.append(f"no run_fn     {why}" if why else f"continue by   the run_fn of {file}")
    say("\n".join(lines))
    return 0


def _keep_graph(args: argparse.Namespace) -> int:
    """Keeps the exported graph, and prints the comparison and the limits."""
    why = "--to graph takes the graph as it was exported"
    _refuse_others(args, why, "checkpoint", "declaration", "network", "map", "estimator", *_OF_CODE)
    output = _new_folder(args.output)
    say(f"keeping the graph that {one_line(args.source)} exported, and training a step of it")
    whole = "a complete SavedModel, with TensorFlow's built-in operations only"
    with _user_errors(whole, "copy it again; or convert the network"):
        from tfx_estimator.pipeline.convert.exported_graph import keep

        kept = keep(args.source, output, args.examples or "", args.answer)
    say("\n".join([*kept.lines(), f"wrote         {one_line(args.output)}: see its network.py"]))
    return 0


def _refuse_others(args: argparse.Namespace, why: str, *names: str) -> None:
    """Refuses options without effect on this conversion."""
    plain = {"checkpoint": "", "answer": "", "tf1": False}
    if given := [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) != plain.get(name)]:
        raise DeclarationError(f"{', '.join(given)}: {why}", expected="only the other options", todo="leave it out")


@contextlib.contextmanager
def _user_errors(
    expected: str = "the run's artifacts, and the module of trainer.model, as they were when it trained",
    todo: str = _RUN_AGAIN,
) -> Iterator[None]:
    """Turns errors from the user's code or damaged files into a UserCodeError; hides what TensorFlow prints."""
    from tfx_estimator.pipeline.run.terminal import quiet
    from tfx_estimator.pipeline.user_source.frames import user_lines

    try:
        with quiet(os.devnull):
            yield
    except (OSError, TfxEstimatorError):
        raise
    except Exception as error:
        from tfx_estimator.model_fn.bridge.tf1 import lacks

        if missing := lacks(error, "add --tf1"):
            raise missing from error
        lines = "".join(user_lines(error)[-1:]).splitlines()
        if isinstance(error, NotImplementedError) and todo == _RUN_AGAIN:
            todo = f"write get_config of each of your own layers, which model.keras needs; else {todo}"
        raise UserCodeError(
            "\n".join([f"the training cannot be converted: {type(error).__name__}: {first_line(error)}", *lines]),
            expected=expected,
            todo=todo,
        ) from error


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
    from tfx_estimator.pipeline.config.paths import reject_address

    reject_address(name, "--output")
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.lexists(path):
        raise DeclarationError(f"{one_line(name)} exists", expected="a folder to make", todo="choose another name")
    with writing(name):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return path
