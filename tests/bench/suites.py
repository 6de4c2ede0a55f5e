"""The benchmarks of training, reader, pipeline, Keras paths and stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.keras_worker import CASES, KERAS_PATHS, ONE_THREAD, PATHS, WHOLE
from tests.bench.measure import alternate, alternate_slices, median, run_worker
from tests.bench.report import Ratio
from tests.bench.setting import Setting, in_slices, less, micros_of, more, rate_of, whole
from tests.bench.stacks import stacks

# The tutorial's. It reads 10,000 examples ahead and ends after 60,000: between these steps its speed is steady.
TUTORIAL_BATCH = 64
# 60 steps to warm up, then 11 slices, 46,080 examples in all; the reader's 12 slices of 60 batches are as many.
TRAINING_STEPS, TRAINING_SLICES = 60, 11
READER_BATCHES, READER_SLICES = {"tutorial": 60, "ours": 600}, 12
# Several epochs in each slice.
TABLE_ROWS, TABLE_BATCH, TABLE_BATCHES = 100_000, 128, 1_600
INGESTED_ROWS = 20_000
EMBEDDING_STEPS, EMBEDDING_SLICES = 20, 8
PIPELINE_BATCH, PIPELINE_STEPS = 128, 500
# One slice to warm up, then these. The guide reads from its cache after 469 steps of the dense network and 782 of
# CIFAR-10: in most slices.
DENSE_STEPS, DENSE_SLICES = 400, 8
CIFAR_STEPS, CIFAR_SLICES = 200, 12
INPUT_SLICES = 8


def training(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Our Estimator path from tf.Examples against TensorFlow's tutorial, and against one batch in memory."""
    results, cpu, rate = _train(setting, ("tutorial", "ours", "constant"), TRAINING_STEPS, TRAINING_SLICES)
    return [
        less("training: CPU per example, TensorFlow's tutorial", cpu["tutorial"], cpu["ours"], 1.8),
        more("training: examples/s, TensorFlow's tutorial", rate["tutorial"], rate["ours"], 1.5),
        more("training: examples/s, a constant batch in memory", rate["constant"], rate["ours"], 0.9),
    ], results


def keras_dense(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """The dense MNIST model of Keras's guide on our Keras paths, against the guide's own code."""
    sides = ("guide", *KERAS_PATHS)
    results, cpu, _ = _train_keras(setting, "dense", sides, DENSE_STEPS, DENSE_SLICES)
    what = "{}: CPU per example, Keras's guide, dense MNIST"
    return [less(what.format(path), cpu["guide"], cpu[path], 2.5) for path in KERAS_PATHS], results


def keras_cifar(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """CIFAR-10 with `cifar_cnn` on our Keras paths, against the guide's own code.

    As in its preset, with parallel parts of a batch; and with whole batches, on TensorFlow's default threads and on
    one.
    """
    beside = [f"{which} keras" for which in (WHOLE, ONE_THREAD)]
    results, cpu, rate = _train_keras(setting, "cifar_cnn", ("guide", *KERAS_PATHS, *beside), CIFAR_STEPS, CIFAR_SLICES)
    what = "{}: CPU per example, Keras's guide, CIFAR-10"
    parts = "{}: examples/s, {}, CIFAR-10"
    return [
        *(less(what.format(path), cpu["guide"], cpu[path], 1.45) for path in KERAS_PATHS),
        *(more(parts.format("keras", side), rate[side], rate["keras"], 1.05) for side in beside),
    ], results


def keras_input(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Each path, Estimator included, against itself on one batch in memory, on CIFAR-10 and MNIST."""
    ratios: list[Ratio] = []
    everything: dict[str, Any] = {}
    for case, steps, target in (("cifar_cnn", CIFAR_STEPS, 0.95), ("mnist_cnn", DENSE_STEPS, 0.9)):
        sides = [side for path in PATHS for side in (path, f"constant {path}")]
        results, _, rate = _train_keras(setting, case, sides, steps, INPUT_SLICES)
        everything |= {f"{case}, {side}": values for side, values in results.items()}
        what = f"{{}}: examples/s, a constant batch in memory, {case}"
        ratios += [more(what.format(path), rate[f"constant {path}"], rate[path], target) for path in PATHS]
    return ratios, everything


def reader(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Our input_fn, decoding and Transform graph included, against the tutorial's."""
    options = {"data_dir": setting.data_dir, "prepared": setting.prepared(), "batch_size": TUTORIAL_BATCH}
    sides = [
        (side, in_slices("read", side=side, batches=batches, **options)) for side, batches in READER_BATCHES.items()
    ]
    results = alternate_slices(sides, READER_SLICES, setting.rounds, setting.log)
    cpu = {side: micros_of(values) for side, values in results.items()}
    return [less("reader: CPU per example, TensorFlow's tutorial", cpu["tutorial"], cpu["ours"], 10)], results


def table_reader(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Our input_fn on a table's transformed examples, 13 numbers and 26 words, against TFX's own."""
    path = f"{setting.folder}/ctr-{TABLE_ROWS}"
    setting.log(f"writing {TABLE_ROWS:,} rows")
    run_worker("write_table", path=path, rows=TABLE_ROWS)
    options = {"path": path, "batch_size": TABLE_BATCH, "batches": TABLE_BATCHES}
    sides = [(side, in_slices("read_table", side=side, **options)) for side in ("tfx", "memory", "files")]
    results = alternate_slices(sides, READER_SLICES, setting.rounds, setting.log)
    cpu = {side: micros_of(values) for side, values in results.items()}
    what = "table reader, {}: CPU per example, TFX's tf_dataset_factory"
    return [
        less(what.format("in memory"), cpu["tfx"], cpu["memory"], 4),
        less(what.format("from files"), cpu["tfx"], cpu["files"], 1.5),
    ], results


def table_ingestion(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """A day's CSV files, of 13 numbers and 26 words, read and transformed, against TFX's own components."""
    folder = f"{setting.folder}/ctr-csv-{INGESTED_ROWS}"
    setting.log(f"writing {INGESTED_ROWS:,} rows")
    run_worker("write_csv", folder=folder, rows=INGESTED_ROWS)
    sides = [(side, whole("ingest_table", side=side, folder=folder)) for side in ("tfx", "ours")]
    results = alternate(sides, setting.rounds, setting.log)
    cost = {side: per_node(values) for side, values in results.items()}
    return [
        less("table ingestion: CPU of CsvExampleGen, TFX's", *_both(cost, "CsvExampleGen"), 3, "s"),
        less("table ingestion: CPU of Transform, a vocabulary a column", *_both(cost, "Transform"), 1.5, "s"),
    ], results


def table_embeddings(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """A wide and deep Estimator of 26 words, the largest of a million values, against TensorFlow's own."""
    sides = [(side, in_slices("train_embeddings", side=side, steps=EMBEDDING_STEPS)) for side in ("tensorflow", "ours")]
    results = alternate_slices(sides, EMBEDDING_SLICES, setting.rounds, setting.log)
    cpu = {side: micros_of(values) for side, values in results.items()}
    what = "embeddings: CPU per example, TensorFlow's DNNLinearCombinedClassifier"
    return [less(what, cpu["tensorflow"], cpu["ours"], 3.5)], results


def _both(cost: dict[str, dict[str, float]], node: str) -> tuple[float, float]:
    return cost["tfx"][node], cost["ours"][node]


def pipeline(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """The whole pipeline against the shape of TFX's official MNIST example."""
    floats = f"{setting.folder}/mnist-floats"
    setting.log("writing the input of TFX's example")
    run_worker("write_floats", data_dir=setting.data_dir, folder=floats)
    options = {
        "data_dir": setting.data_dir,
        "floats": floats,
        "batch_size": PIPELINE_BATCH,
        "steps": PIPELINE_STEPS,
    }
    sides = [(side, whole("run_pipeline", side=side, **options)) for side in ("tfx_example", "ours")]
    results = alternate(sides, setting.rounds, setting.log)
    for side, values in results.items():
        if not all(value["pushed"] for value in values):
            raise RuntimeError(f"{side} pushed no model: its cost is meaningless")
        for value in values:
            value["process_cpu"] = value["process"]["cpu"]
    components = {side: median(values, "cpu") for side, values in results.items()}
    process = {side: median(values, "process_cpu") for side, values in results.items()}
    return [
        less(
            "pipeline: CPU of all components, TFX's MNIST example",
            components["tfx_example"],
            components["ours"],
            3,
            "s",
        ),
        less("pipeline: the same with imports and compiling", process["tfx_example"], process["ours"], 3, "s"),
    ], results


def per_node(values: list[dict[str, Any]]) -> dict[str, float]:
    return {name: median([value["nodes"][name] for value in values], "cpu") for name in values[0]["nodes"]}


SUITES: dict[str, Callable[[Setting], tuple[list[Ratio], dict[str, Any]]]] = {
    "training": training,
    "reader": reader,
    "table_reader": table_reader,
    "table_ingestion": table_ingestion,
    "table_embeddings": table_embeddings,
    "pipeline": pipeline,
    "keras_dense": keras_dense,
    "keras_cifar": keras_cifar,
    "keras_input": keras_input,
    "stacks": stacks,
}


# All results, CPU µs per example, examples/s, each by side.
Measured = tuple[dict[str, list[dict]], dict[str, float], dict[str, float]]


def _train(setting: Setting, sides: Sequence[str], steps: int, slices: int) -> Measured:
    options = {"prepared": setting.prepared(), "batch_size": TUTORIAL_BATCH, "steps": steps}
    return _in_turns(setting, "train", sides, slices, options)


def _train_keras(setting: Setting, case: str, sides: Sequence[str], steps: int, slices: int) -> Measured:
    """The same for a case of `keras_worker`."""
    options = {"case": case, "prepared": setting.prepared(CASES[case].dataset), "slice_steps": steps}
    return _in_turns(setting, "train_keras", sides, slices, options)


def _in_turns(setting: Setting, task: str, sides: Sequence[str], slices: int, options: dict[str, Any]) -> Measured:
    workers = [(side, in_slices(task, side=side, data_dir=setting.data_dir, **options)) for side in sides]
    results = alternate_slices(workers, slices, setting.rounds, setting.log)
    cpu = {side: micros_of(values) for side, values in results.items()}
    rate = {side: rate_of(values) for side, values in results.items()}
    return results, cpu, rate
