"""`tfx_estimator.run` and other verbs of the command line as functions."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.config.draft import join_sources
from tfx_estimator.pipeline.python.call import call, listed, set_words, texts
from tfx_estimator.pipeline.python.results import BenchResult, Checked, CompareResult, PredictResult, RunResult
from tfx_estimator.pipeline.python.rows import to_rows, write_rows

Source = Union[str, os.PathLike[str]]
Sources = Union[Source, Sequence[Source]]
# Values by dotted path; or `KEY=VALUE`, once or several times, as after `--set`.
Overrides = Union[Mapping[str, Any], str, Iterable[str], None]
# Several values by dotted path; or `KEY=VALUE,VALUE`, as after `--vary`.
Vary = Union[Mapping[str, Any], str, Iterable[str], None]


def run(
    source: Sources,
    workdir: Source = "runs",
    overrides: Overrides = None,
    *,
    require_blessing: bool = False,
    dry_run: bool = True,
    report: bool = True,
    rerun: Union[str, Iterable[str]] = (),
    progress: bool = True,
) -> RunResult:
    """Runs the declared pipeline on this machine, as `tfx-estimator run` does.

        result = tfx_estimator.run("digits", overrides={"trainer.train_steps": 200})
        result.metrics["accuracy"], result.blessed, result.model_uri

    It runs in a subprocess: see docs/notebooks.md.

    Args:
        source: A preset's name, or a YAML file; several as a list or joined by +, where later ones override.
        workdir: Folder of all runs, or gs://BUCKET/FOLDER.
        overrides: Values by dotted path that replace the declared ones.
        require_blessing: Whether a model that is not blessed is an error.
        dry_run: Whether your code is tried on made-up examples before any data is read.
        report: Whether report.html is made.
        rerun: Components that run again though nothing has changed.
        progress: Whether to show progress: in a notebook as one updated line, elsewhere on stderr.

    Returns:
        The results of the run.

    Raises:
        TfxEstimatorError: The run failed; the class tells the kind of failure.
        NotBlessedError: The model was not blessed, and `require_blessing` is set.
        KeyboardInterrupt: The run was interrupted, and has cleaned up; the next run resumes from there.
    """
    words = ["run", _source(source), "--workdir", _path(workdir), *set_words(overrides)]
    words += ["--require-blessing"] * bool(require_blessing) + ["--no-dry-run"] * (not dry_run)
    words += [word for name in texts("rerun", rerun) for word in ("--rerun", name)]
    logs = call([*words, "--report" if report else "--no-report"], progress)
    # A cluster's task other than the chief has no results of its own.
    return RunResult(logs, _read(logs, "summary.json") if logs else {})


def compare(
    *sources: Union[Sources, RunResult],
    vary: Vary = None,
    repeat: int = 1,
    overrides: Overrides = None,
    workdir: Source = "runs",
    output: Optional[Source] = None,
    require_equal: Optional[float] = None,
    progress: bool = True,
) -> CompareResult:
    """Trains declarations on the same examples, or takes finished runs, and compares them side by side.

        tfx_estimator.compare(first, second)
        tfx_estimator.compare("digits", vary={"trainer.optimizer.learning_rate": [0.001, 0.01]})

    Args:
        sources: Presets, YAML files, results of `run`, or folders of their logs; all are compared with the first.
        vary: Values by dotted path; the one declaration is trained with each combination of them.
        repeat: Number of seeds under which each declaration is trained.
        overrides: Values by dotted path, for every declaration.
        workdir: Where declarations are trained.
        output: Folder for compare.json and compare.html; None is a new one next to the first one's runs.
        require_equal: Largest difference of any two accuracies, in percentage points; None is no limit.
        progress: As in `run`.

    Returns:
        The results of the comparison.

    Raises:
        TfxEstimatorError: A candidate failed.
        NotEqualError: Accuracies differ by more than `require_equal`.
    """
    words = ["compare", *_paths(sources), "--workdir", _path(workdir), "--repeat", str(repeat)]
    words += [*set_words(overrides), *set_words(vary, "--vary")]
    words += ["--output", _path(output)] if output is not None else []
    words += ["--require-equal", str(require_equal)] if require_equal is not None else []
    folder = call(words, progress)
    return CompareResult(folder, _read(folder, "compare.json"))


def bench(
    source: Sources,
    strategies: Union[str, Iterable[str]] = ("all",),
    *,
    paths: Union[str, Iterable[str]] = (),
    vary: Vary = None,
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
        source: A preset's name, or a YAML file; several as a list or joined by +, where later ones override.
        strategies: Names with a count of devices or workers; `all` is each with 2.
        paths: Values of trainer.path to measure with each strategy; none is the declared one.
        vary: Values by dotted path, or by key of `trainer`, with each of which each strategy is measured.
        device: `cpu` or `gpu`.
        steps: Measured steps.
        warmup: Steps before the measured ones.
        rounds: How often each strategy is measured, in turns.
        input_share: Whether each is also measured on a batch that stays in memory.
        overrides: Values by dotted path that replace the declared ones.
        workdir: Where the inputs are kept.
        output: Folder for the results; None is a new one under the workdir.
        progress: As in `run`.

    Returns:
        The measurements.

    Raises:
        TfxEstimatorError: A strategy could not be measured.
    """
    words = ["bench", "strategies", _source(source), "--workdir", _path(workdir), "--device", str(device)]
    words += [*set_words(overrides), *set_words(vary, "--vary")]
    words += ["--strategies", listed("strategies", strategies), "--paths", listed("paths", paths)]
    words += ["--steps", str(steps), "--warmup", str(warmup), "--rounds", str(rounds)]
    words += ["--output", _path(output)] if output is not None else []
    folder = call([*words, "--input-share" if input_share else "--no-input-share"], progress)
    return BenchResult(folder, _read(folder, "strategies.json"))


def predict(
    model: Union[Source, RunResult],
    *inputs: Any,
    top: Optional[int] = None,
    batch_size: int = 128,
    signature: str = "",
    pixels: Optional[tuple[float, float]] = None,
    progress: bool = True,
) -> PredictResult:
    """Predicts images, rows, or tf.Examples, as `tfx-estimator predict` does; all results are in memory.

        tfx_estimator.predict(result, "photos").to_dataframe()
        tfx_estimator.predict(result, [{"age": 38, "city": "Oslo"}]).rows

    Args:
        model: The result of a `run`, a pushed version or a folder of such, a run's folder, or any SavedModel.
        inputs: Image files, folders of such, CSV or Parquet files of their names or of features, TFRecord files; lists
            of these; or rows: a data frame, or a list of mappings of features.
        top: Number of classes with scores per example; None is all.
        batch_size: Examples per call of the model.
        signature: `NAME[:OUTPUT]`: the signature, and the output that holds the scores; empty is the first that fits.
        pixels: For a model that takes images as floats: the values of the pixels 0 and 255.
        progress: As in `run`.

    Returns:
        The prediction of each example; `error` describes inputs that could not be read.

    Raises:
        TfxEstimatorError: Nothing could be predicted.
    """
    words = ["--batch-size", str(batch_size), "--signature", str(signature)]
    words += ["--top", str(top)] if top is not None else []
    words += [f"--pixels={listed('pixels', pixels)}"] if pixels is not None else []
    with tempfile.TemporaryDirectory() as folder:
        file, error, paths = os.path.join(folder, "answers.jsonl"), None, []
        for number, each in enumerate(inputs):
            each = list(each) if isinstance(each, Iterator) else each
            rows = to_rows(each)
            paths += [write_rows(rows, os.path.join(folder, f"rows-{number}.parquet"))] if rows else _paths(each)
        try:
            call(["predict", *words, "--output", file, "--", _path(model), *paths], progress)
        except DataError as raised:
            # All readable inputs were predicted.
            if not os.path.exists(file):
                raise
            error = raised
        with open(file, encoding="utf-8") as lines:
            return PredictResult([json.loads(line) for line in lines], error)


def validate(source: Sources, overrides: Overrides = None, *, deep: bool = False, target: str = "") -> Checked:
    """Checks a declaration, as `tfx-estimator validate` does.

    Args:
        source: A preset's name, or a YAML file; several as a list or joined by +, where later ones override.
        overrides: Values by dotted path that replace the declared ones.
        deep: Whether to also try your code on made-up examples, in a subprocess, which takes some seconds.
        target: The deployment target; what is missing for it is an error too.

    Returns:
        The declaration, with warnings and notes.

    Raises:
        DeclarationError: The declaration is invalid; the message lists all problems.
        UserCodeError: Your code failed.
    """
    from tfx_estimator.pipeline.commands.validate import check

    named = _source(source)
    loaded, tried = check(named, set_words(overrides)[1::2], str(target), deep)
    return Checked(named, loaded.declaration, loaded.remarks, str(tried or ""), loaded.origins)


def _path(named: Any) -> str:
    found = _paths(named)
    if len(found) != 1:
        raise DeclarationError(f"{len(found)} paths: {', '.join(found)}", expected="one path", todo="name one")
    return found[0]


def _paths(named: Any) -> list[str]:
    return [os.path.expanduser(each) for each in texts("a path", named)]


def _source(named: Sources) -> str:
    return join_sources(_paths(named))


def _read(folder: str, name: str) -> dict[str, Any]:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)
