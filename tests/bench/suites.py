"""The benchmarks: training, supervisor, reader, pipeline; those of the Keras paths; one stack against the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.cluster import SIDES, measure_side
from tests.bench.keras_worker import CASES, KERAS_PATHS, ONE_THREAD, PATHS, WHOLE
from tests.bench.measure import alternate, alternate_slices, median, run_worker
from tests.bench.products import PRODUCTS
from tests.bench.report import Ratio
from tests.bench.setting import Setting, in_slices, less, micros_of, more, rate_of, whole
from tests.bench.stacks import stacks

# The tutorial's. It reads 10,000 examples ahead and ends after 60,000: between these steps it is at a steady pace.
TUTORIAL_BATCH = 64
# 60 steps to warm up, then 11 slices, 46,080 examples in all; the reader's 12 slices of 60 batches are as many.
TRAINING_STEPS, TRAINING_SLICES = 60, 11
# 2,000 steps in all; a slice is long enough for the hooks' reports, which come twice a second.
SUPERVISED_STEPS, SUPERVISED_SLICES = 250, 7
READER_BATCHES, READER_SLICES = {"tutorial": 60, "ours": 600}, 12
PIPELINE_BATCH, PIPELINE_STEPS = 128, 500
# One slice to warm up, then these. After 469 steps of the dense network and 782 of CIFAR-10 the guide takes its data
# from its cache: in most slices.
DENSE_STEPS, DENSE_SLICES = 400, 8
CIFAR_STEPS, CIFAR_SLICES = 200, 12
INPUT_SLICES = 8
MICROBATCHES = (1, 2, 4, 8)


def training(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Our Estimator path from tf.Examples against TensorFlow's tutorial, and against a batch that stays in memory."""
    results, cpu, rate = _train(setting, ("tutorial", "ours", "constant"), TRAINING_STEPS, TRAINING_SLICES)
    return [
        less("training: CPU per example, TensorFlow's tutorial", cpu["tutorial"], cpu["ours"], 1.8),
        more("training: examples/s, TensorFlow's tutorial", rate["tutorial"], rate["ours"], 1.5),
        more("training: examples/s, a constant batch in memory", rate["constant"], rate["ours"], 0.9),
    ], results


def supervisor(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Our Estimator path with the hooks, heartbeat and polling of a supervised task, against the same without."""
    results, cpu, rate = _train(setting, ("ours", "supervised"), SUPERVISED_STEPS, SUPERVISED_SLICES)
    return [
        less("supervisor: CPU per example, training without one", cpu["ours"], cpu["supervised"], 0.97),
        more("supervisor: examples/s, training without one", rate["ours"], rate["supervised"], 0.97),
    ], results


def keras_dense(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """The dense MNIST model of Keras's guide on our Keras paths, against the guide's own code."""
    sides = ("guide", *KERAS_PATHS)
    results, cpu, _ = _train_keras(setting, "dense", sides, DENSE_STEPS, DENSE_SLICES)
    what = "{}: CPU per example, Keras's guide, dense MNIST"
    return [less(what.format(path), cpu["guide"], cpu[path], 2.5) for path in KERAS_PATHS], results


def keras_cifar(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """CIFAR-10 with `cifar_cnn` on our Keras paths, against the guide's own code.

    As in its preset, which computes parts of a batch at the same time; beside it with whole batches, by TensorFlow's
    own threads and by one.
    """
    beside = [f"{which} keras" for which in (WHOLE, ONE_THREAD)]
    results, cpu, rate = _train_keras(setting, "cifar_cnn", ("guide", *KERAS_PATHS, *beside), CIFAR_STEPS, CIFAR_SLICES)
    what = "{}: CPU per example, Keras's guide, CIFAR-10"
    parts = "{}: examples/s, {}, CIFAR-10"
    return [
        *(less(what.format(path), cpu["guide"], cpu[path], 1.45) for path in KERAS_PATHS),
        *(more(parts.format("keras", side), rate[side], rate["keras"], 1.05) for side in beside),
    ], results


def keras_precision(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """CIFAR-10 with `cifar_cnn` in `mixed_bfloat16` on our Keras paths, against the guide's own code in float32.

    The target is that of a processor with AVX512-BF16 or AMX.
    """
    sides = ("guide", *KERAS_PATHS)
    results, cpu, _ = _train_keras(setting, "cifar_cnn_bfloat16", sides, CIFAR_STEPS, CIFAR_SLICES)
    what = "{} in mixed_bfloat16: CPU per example, Keras's guide, CIFAR-10"
    return [less(what.format(path), cpu["guide"], cpu[path], 2.4) for path in KERAS_PATHS], results


def xla(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """The dense MNIST model of Keras's guide on our Keras paths, compiled with XLA, against the same without.

    Beside them the products of its matrices alone: where these cost more than 1 / 1.3 of a step, whoever does the same
    products cannot gain what is asked, and had all the rest for nothing.
    """
    sides = [side for path in KERAS_PATHS for side in (path, f"xla {path}")]
    results, cpu, rate = _train_keras(setting, "dense", [*sides, PRODUCTS], DENSE_STEPS, DENSE_SLICES)
    ratios = []
    for path in KERAS_PATHS:
        ratios.append(less(f"{path}: CPU per example, its matrix products alone", cpu[path], cpu[PRODUCTS], 1.3))
        ratios.append(less(f"{path}, xla: CPU per example, dense MNIST", cpu[path], cpu[f"xla {path}"], 1.3))
        ratios.append(more(f"{path}, xla: examples/s, dense MNIST", rate[path], rate[f"xla {path}"], 1.3))
    return ratios, results


def keras_input(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Each path, an Estimator's too, against the same on a batch that stays in memory, on CIFAR-10 and MNIST."""
    ratios: list[Ratio] = []
    everything: dict[str, Any] = {}
    for case, steps, target in (("cifar_cnn", CIFAR_STEPS, 0.95), ("mnist_cnn", DENSE_STEPS, 0.9)):
        sides = [side for path in PATHS for side in (path, f"constant {path}")]
        results, _, rate = _train_keras(setting, case, sides, steps, INPUT_SLICES)
        everything |= {f"{case}, {side}": values for side, values in results.items()}
        what = f"{{}}: examples/s, a constant batch in memory, {case}"
        ratios += [more(what.format(path), rate[f"constant {path}"], rate[path], target) for path in PATHS]
    return ratios, everything


def two_processes(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Two processes of one core each against one, on CIFAR-10: as they are, and with less to say.

    Gradients of four parts; weights averaged every four steps. Beside them two trainings that know nothing of each
    other: more than these no two processes can.
    """
    setting.tell("preparing the inputs of the preset cifar10")
    inputs = run_worker("prepare_cluster", folder=setting.folder, data_dir=setting.data_dir)
    inputs.pop("process")
    sides = [(name, functools.partial(measure_side, side, inputs, setting.data_dir)) for name, side in SIDES.items()]
    results = alternate(sides, setting.rounds, setting.tell)
    # As `bench strategies` compares: without what other processes took of the cores.
    rate = {side: median(values, "undisturbed") for side, values in results.items()}
    what = "two processes: examples/s, one process, CIFAR-10, {}"
    return [
        more(what.format("two independent trainings"), rate["one"], rate["independent"], 1.95),
        more(what.format("multi_worker_mirrored"), rate["one"], rate["two"], 1.5),
        more(what.format("multi_worker_mirrored, twice the batch"), rate["one"], rate["scaled"], 1.5),
        more(what.format("gradient_accumulation: 4"), rate["one"], rate["accumulated"], 1.8),
        more(what.format("sync_every: 4"), rate["one"], rate["averaged"], 1.8),
    ], results


def stages(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """`pipeline_parallel` of two equal stages: time at work against the ideal, and its rate against one device."""
    sides = [(str(count), whole("measure_stages", microbatches=count)) for count in (0, *MICROBATCHES)]
    results = alternate(sides, setting.rounds, setting.tell)
    ratios = []
    for count in map(str, MICROBATCHES):
        bubble, ideal = (median(results[count], name) for name in ("bubble", "ideal"))
        what = f"two stages, {count} microbatches: bubble, (p - 1) / (m + p - 1)"
        ratios.append(Ratio(what, f"{ideal:.2f}", f"{bubble:.2f}", (1 - bubble) / (1 - ideal), 0.85))
    rates = {side: median(values, "rate") for side, values in results.items()}
    most = str(MICROBATCHES[-1])
    return [*ratios, more(f"two stages, {most} microbatches: one device", rates["0"], rates[most], 0.9)], results


def reader(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """Our input_fn, decoding and Transform graph included, against the tutorial's."""
    options = {"data_dir": setting.data_dir, "prepared": setting.prepared(), "batch_size": TUTORIAL_BATCH}
    sides = [
        (side, in_slices("read", side=side, batches=batches, **options)) for side, batches in READER_BATCHES.items()
    ]
    results = alternate_slices(sides, READER_SLICES, setting.rounds, setting.tell)
    cpu = {side: micros_of(values) for side, values in results.items()}
    return [less("reader: CPU per example, TensorFlow's tutorial", cpu["tutorial"], cpu["ours"], 10)], results


def pipeline(setting: Setting) -> tuple[list[Ratio], dict[str, Any]]:
    """The whole pipeline against the shape of TFX's official MNIST example.

    Raises:
        RuntimeError: A side pushed no model.
    """
    floats = f"{setting.folder}/mnist-floats"
    setting.tell("writing the input of TFX's example")
    run_worker("write_floats", data_dir=setting.data_dir, folder=floats)
    options = {
        "data_dir": setting.data_dir,
        "floats": floats,
        "batch_size": PIPELINE_BATCH,
        "steps": PIPELINE_STEPS,
    }
    sides = [(side, whole("run_pipeline", side=side, **options)) for side in ("tfx_example", "ours")]
    results = alternate(sides, setting.rounds, setting.tell)
    for side, values in results.items():
        if not all(value["pushed"] for value in values):
            raise RuntimeError(f"{side} pushed no model: its cost says nothing")
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
    """Medians of each component's CPU seconds.

    Returns:
        CPU seconds under each component's id.
    """
    return {name: median([value["nodes"][name] for value in values], "cpu") for name in values[0]["nodes"]}


SUITES: dict[str, Callable[[Setting], tuple[list[Ratio], dict[str, Any]]]] = {
    "training": training,
    "supervisor": supervisor,
    "reader": reader,
    "pipeline": pipeline,
    "keras_dense": keras_dense,
    "keras_cifar": keras_cifar,
    "keras_precision": keras_precision,
    "xla": xla,
    "keras_input": keras_input,
    "two_processes": two_processes,
    "stages": stages,
    "stacks": stacks,
}


def _train(
    setting: Setting, sides: tuple[str, ...], steps: int, slices: int
) -> tuple[dict[str, list[dict]], dict[str, float], dict[str, float]]:
    """Trains under each side in turns: all results, CPU µs per example, examples/s."""
    options = {
        "data_dir": setting.data_dir,
        "prepared": setting.prepared(),
        "batch_size": TUTORIAL_BATCH,
        "steps": steps,
    }
    workers = [(side, in_slices("train", side=side, **options)) for side in sides]
    results = alternate_slices(workers, slices, setting.rounds, setting.tell)
    cpu = {side: micros_of(values) for side, values in results.items()}
    rate = {side: rate_of(values) for side, values in results.items()}
    return results, cpu, rate


def _train_keras(
    setting: Setting, case: str, sides: Sequence[str], steps: int, slices: int
) -> tuple[dict[str, list[dict]], dict[str, float], dict[str, float]]:
    """The same with Keras, of a case of `keras_worker`."""
    dataset = CASES[case].dataset
    options = {
        "case": case,
        "data_dir": setting.data_dir,
        "prepared": setting.prepared(dataset),
        "slice_steps": steps,
    }
    workers = [(side, in_slices("train_keras", side=side, **options)) for side in sides]
    results = alternate_slices(workers, slices, setting.rounds, setting.tell)
    cpu = {side: micros_of(values) for side, values in results.items()}
    rate = {side: rate_of(values) for side, values in results.items()}
    return results, cpu, rate
