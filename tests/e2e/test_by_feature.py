"""The examples of techniques, run completely."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.e2e.effects import PROFILED, STEPS, count_operations, read_graph, read_logs
from tests.examples import EXAMPLES, copy_example

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

# Lines about a technique in the results.
LINES = {
    "evaluation": "by ink x label",
    "tune": "tuned         augment ",
    "pipeline_parallel": "2 stages, 8 microbatches: bubble 0.",
    "scaling": "learning rate 0.04 (0.02 times 2 replicas)",
    "profile": "profile of chief-0: 20 steps in ",
    "warm_start": "trainer.warm_start left out logits/kernel, by trainer.warm_start.exclude; logits/bias",
}

_SUM = "CollectiveReduceV2"


def _accumulates(run: Path) -> None:
    # Each of four parts passes through the network, and their gradients are sent once.
    counts = count_operations(run)
    assert sum(count for (_, kind), count in counts.items() if kind == "Conv2DBackpropFilter") == 4 * STEPS
    assert _sums_of_gradients(counts) == STEPS


def _compresses(run: Path) -> None:
    sent = {dtype for op, dtype, _ in read_graph(run) if op.startswith("CollectiveReduce")}
    # The loss is not compressed.
    assert sent == {"bfloat16", "float32"}


def _averages(run: Path) -> None:
    # No gradients, but all weights and their momentum in each fourth step.
    counts = count_operations(run)
    assert _sums_of_gradients(counts) == 0
    in_turn = [count for (name, kind), count in counts.items() if kind == _SUM and name.startswith("cond")]
    assert in_turn == [STEPS / 4]


def _sums_of_gradients(counts: Counter[tuple[str, str]]) -> int:
    return sum(count for (name, kind), count in counts.items() if kind == _SUM and "Momentum/" in name)


def _is_divided(run: Path) -> None:
    on_each = {device[-len("CPU:0") :] for op, _, device in read_graph(run) if op in ("Conv2D", "MatMul")}
    assert on_each == {"CPU:0", "CPU:1"}


def _packs(run: Path) -> None:
    # Messages of 64 KiB: otherwise all fit into one.
    assert sum(count for (op, _, _), count in read_graph(run).items() if op.startswith("CollectiveReduce")) > 1


def _computes_in_16_bits(run: Path) -> None:
    graph = {(op, dtype) for op, dtype, _ in read_graph(run)}
    assert {("Conv2D", "bfloat16"), ("Conv2DBackpropFilter", "bfloat16")} <= graph
    assert ("Conv2D", "float32") not in graph


def _is_set(run: Path) -> None:
    # As reported by TensorFlow.
    logs = read_logs(run)
    for line in ("intra-op threads: 1", "inter-op threads: 2", "oneDNN: on"):
        assert f"runtime: {line}\n" in logs
    assert "(memory_growth=True, allocator=cuda_malloc_async)" in logs


def _is_compiled(run: Path) -> None:
    assert "Compiled cluster using XLA" in read_logs(run)


# Would fail if the option had no effect.
EFFECTS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "gradient_accumulation": (_accumulates, PROFILED),
    "gradient-compression": (_compresses, ()),
    "local-sgd": (_averages, PROFILED),
    "model_parallel": (_is_divided, ()),
    "packs": (_packs, ()),
    "precision": (_computes_in_16_bits, ()),
    "runtime": (_is_set, ()),
    "xla": (_is_compiled, ()),
}
# Examples that must run before.
FIRST = {"warm_start": ["scaling"]}


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "by_feature").glob("*.yaml")))
def test_an_example_pushes_a_blessed_model(name, tmp_path):
    folder = copy_example("by_feature", tmp_path)
    workdir = Workdir(folder / "runs")
    for other in FIRST.get(name, ()):
        workdir.run(f"{other}.yaml", cwd=folder)
    effect, options = EFFECTS.get(name, (None, ()))
    output = workdir.run(f"{name}.yaml", *options, cwd=folder)
    # Every example needs such a line or effect.
    assert name in {*LINES, *EFFECTS}
    assert LINES.get(name, "") in output
    if name == "pipeline_parallel":
        # One stage after another would be a half; the ideal is 0.11.
        assert float(re.search(r"bubble (0\.\d+)", output)[1]) < 0.4
    results = workdir.summary(name.replace("_", "-"))
    assert results["blessed"] is True
    if effect is not None:
        effect(Path(results["model_run"]))
