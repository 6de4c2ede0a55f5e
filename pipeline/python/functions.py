"""`tfx_estimator.run` and other verbs of the command line as functions: thin, and each says what its verb means."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.config.draft import join_sources
from tfx_estimator.pipeline.python.call import call, set_words
from tfx_estimator.pipeline.python.results import BenchResult, Checked, CompareResult, PredictResult, RunResult

Source = Union[str, os.PathLike[str]]
Sources = Union[Source, Sequence[Source]]
# By dotted path, as of `--set`.
Overrides = Optional[Mapping[str, Any]]


def run(
    source: Sources,
    workdir: Source = "runs",
    overrides: Overrides = None,
    *,
    require_blessing: bool = False,
    dry_run: bool = True,
    report: bool = True,
    progress: bool = True,
) -> RunResult:
    """Runs the declared pipeline on this machine, as `tfx-estimator run` does.

        result = tfx_estimator.run("digits", overrides={"trainer.train_steps": 200})
        result.metrics["accuracy"], result.blessed, result.model_uri

    It runs in a process of its own: see docs/notebooks.md.

    Args:
        source: A preset's name, or a YAML file; of several, a list or with + between, the later override.
        workdir: Folder of all runs, or gs://BUCKET/FOLDER.
        overrides: Values by dotted path, in place of the declared ones.
        require_blessing: Whether a model that is not blessed is an error.
        dry_run: Whether your code is tried on made-up examples before any data is read.
        report: Whether report.html is made.
        progress: Whether to show how it goes: in a notebook one line that changes, elsewhere on stderr.

    Returns:
        What the run came to.

    Raises:
        TfxEstimatorError: The run failed; the class says of what.
        NotBlessedError: The model was not blessed, and had to be.
        KeyboardInterrupt: It was interrupted, and has ended in order; the next run goes on from there.
    """
    words = ["run", _source(source), "--workdir", _path(workdir), *set_words(overrides)]
    words += ["--require-blessing"] * require_blessing + ["--no-dry-run"] * (not dry_run)
    logs = call([*words, "--report" if report else "--no-report"], progress)
    # A task of a cluster that is not its chief has trained with it, and has no results of its own.
    return RunResult(logs, _read(logs, "summary.json") if logs else {})


def compare(
    *sources: Union[Source, RunResult],
    vary: Optional[Mapping[str, Iterable[Any]]] = None,
    repeat: int = 1,
    overrides: Overrides = None,
    workdir: Source = "runs",
    output: Optional[Source] = None,
    require_equal: Optional[float] = None,
    progress: bool = True,
) -> CompareResult:
    """Trains declarations on the same examples, or takes finished runs, and puts them side by side.

        tfx_estimator.compare(first, second)
        tfx_estimator.compare("digits", vary={"trainer.optimizer.learning_rate": [0.001, 0.01]})

    Args:
        sources: What is compared with the first: presets, YAML files, results of `run`, or folders of their logs.
        vary: Values by dotted path, under each of which, or each combination of which, the one declaration is trained.
        repeat: Under how many seeds each declaration is trained.
        overrides: Values by dotted path, of every declaration.
        workdir: Where declarations are trained.
        output: Folder for compare.json and compare.html; None is a new one beside the first one's runs.
        require_equal: Points of 100 that any two accuracies may lie apart; None is any.
        progress: As of `run`.

    Returns:
        What was found.

    Raises:
        TfxEstimatorError: A candidate failed.
        NotEqualError: Accuracies lie further apart than `require_equal`.
    """
    named = [each.logs if isinstance(each, RunResult) else _path(each) for each in sources]
    words = ["compare", *named, "--workdir", _path(workdir), *set_words(overrides), *_vary(vary)]
    words += ["--repeat", str(repeat)]
    words += ["--output", _path(output)] if output is not None else []
    words += ["--require-equal", str(require_equal)] if require_equal is not None else []
    folder = call(words, progress)
    return CompareResult(folder, _read(folder, "compare.json"))


def bench(
    source: Sources,
    strategies: Iterable[str] = ("all",),
    *,
    paths: Iterable[str] = (),
    vary: Optional[Mapping[str, Iterable[Any]]] = None,
    device: str = "cpu",
    steps: int = 200,
    warmup: int = 20,
    rounds: int = 3,
    input_share: bool = True,
    overrides: Overrides = None,
    workdir: Source = "runs",
    output: Optional[Source] = None,
    progress: bool = True,
) -> BenchResult:
    """Measures which distribution strategy pays, as `tfx-estimator bench strategies` does.

        tfx_estimator.bench("cifar10", ["one_device", "multi_worker_mirrored:2"]).answer

    Args:
        source: A preset's name, or a YAML file; of several, a list or with + between, the later override.
        strategies: Names with a count of devices or workers; `all` is each with 2.
        paths: Paths of the Trainer to train with each strategy on; none is the declared one.
        vary: Values by dotted path, or by an entry of `trainer`, under each of which each strategy is measured.
        device: `cpu` or `gpu`.
        steps: That are measured.
        warmup: Steps before those.
        rounds: How often each strategy is measured, in turns.
        input_share: Whether each is measured once more on a batch that stays in memory.
        overrides: Values by dotted path, in place of the declared ones.
        workdir: Where the inputs are kept.
        output: Folder for the results; None is a new one under the workdir.
        progress: As of `run`.

    Returns:
        What was found.

    Raises:
        TfxEstimatorError: A strategy could not be measured.
    """
    words = ["bench", "strategies", _source(source), "--workdir", _path(workdir), *set_words(overrides), *_vary(vary)]
    words += ["--strategies", ",".join(strategies), "--paths", ",".join(paths), "--device", device]
    words += ["--steps", str(steps), "--warmup", str(warmup), "--rounds", str(rounds)]
    words += ["--output", _path(output)] if output is not None else []
    folder = call([*words, "--input-share" if input_share else "--no-input-share"], progress)
    return BenchResult(folder, _read(folder, "strategies.json"))


def predict(
    model: Union[Source, RunResult],
    *inputs: Source,
    top: Optional[int] = None,
    batch_size: int = 128,
    signature: str = "",
    pixels: Optional[tuple[float, float]] = None,
    progress: bool = True,
) -> PredictResult:
    """Predicts the classes of images, or of tf.Examples, as `tfx-estimator predict` does; for as many as memory holds.

        tfx_estimator.predict(result, "photos").to_dataframe()

    Args:
        model: The result of a `run`, a pushed version or a folder of such, a run's folder, or any SavedModel.
        inputs: PNG or JPEG files, folders of such, CSV or Parquet files of their names, TFRecord files of tf.Examples.
        top: How many classes of each example have a score; None is all.
        batch_size: Examples a call of the model.
        signature: `NAME[:OUTPUT]`: what is called, and which output holds the scores; empty is the first that fits.
        pixels: Of a model that takes images as floats: what 0 and 255 become.
        progress: As of `run`.

    Returns:
        What the model says of each example; what could not be read is its `error`.

    Raises:
        TfxEstimatorError: Nothing could be predicted.
    """
    named = model.logs if isinstance(model, RunResult) else _path(model)
    words = ["--batch-size", str(batch_size), "--signature", signature]
    words += ["--top", str(top)] if top is not None else []
    words += [f"--pixels={pixels[0]},{pixels[1]}"] if pixels is not None else []
    with tempfile.TemporaryDirectory() as folder:
        file, error = os.path.join(folder, "answers.jsonl"), None
        try:
            call(["predict", *words, "--output", file, "--", named, *map(_path, inputs)], progress)
        except DataError as raised:
            # All others are there.
            if not os.path.exists(file):
                raise
            error = raised
        with open(file, encoding="utf-8") as lines:
            return PredictResult([json.loads(line) for line in lines], error)


def validate(source: Sources, overrides: Overrides = None, *, deep: bool = False, target: str = "") -> Checked:
    """Checks a declaration, as `tfx-estimator validate` does.

    Args:
        source: A preset's name, or a YAML file; of several, a list or with + between, the later override.
        overrides: Values by dotted path, in place of the declared ones.
        deep: Whether your code is tried as well, on made-up examples, in a process of its own: some seconds.
        target: Where else it is to run: then also all that is missing for that is an error.

    Returns:
        The values, and what there is to remark.

    Raises:
        DeclarationError: Something is wrong: the message lists everything that is.
        UserCodeError: Your code failed.
    """
    from tfx_estimator.pipeline.commands.validate import check

    named = _source(source)
    loaded, tried = check(named, set_words(overrides)[1::2], target, deep)
    return Checked(named, loaded.declaration, loaded.remarks, str(tried or ""))


def _path(named: Source) -> str:
    return os.path.expanduser(named)  # type: ignore[return-value]


def _source(named: Sources) -> str:
    return _path(named) if isinstance(named, (str, os.PathLike)) else join_sources([_path(each) for each in named])


def _vary(vary: Optional[Mapping[str, Iterable[Any]]]) -> list[str]:
    # The brackets of a list are not written there.
    words = set_words({key: list(values) for key, values in (vary or {}).items()}, "--vary")
    return [word.replace("=[", "=", 1)[:-1] if index % 2 else word for index, word in enumerate(words)]


def _read(folder: str, name: str) -> dict[str, Any]:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)
