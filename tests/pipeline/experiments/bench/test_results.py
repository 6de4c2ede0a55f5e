"""Results of measurements: sums, medians, ratios, and the conclusion."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tfx_estimator.components.trainer.protocol.measurement import TaskMeasurement
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.experiments.bench.measure import Measurement, summed
from tfx_estimator.pipeline.experiments.bench.page import rows, show
from tfx_estimator.pipeline.experiments.bench.results import Comparison
from tfx_estimator.pipeline.experiments.bench.strategies import Contender, Run
from tfx_estimator.pipeline.run.terminal import make_console


def task(name: str, **values: Any) -> TaskMeasurement:
    """A task's measurement of 10 s."""
    fixed = {"steps": 100, "wall": 10.0, "cpu": 8.0, "busy": 10.0, "peak_rss": 500, "pss": 300}
    counted = {"own_steps": 100, "examples": 3200}
    return TaskMeasurement(name, **{**fixed, **counted, **values})


def measurement(strategy: str, number: int, rate: float, cpu: float = 5.0, **values: Any) -> Measurement:
    """A measurement of 10 s at `rate` examples/s."""
    fixed = {"constant_input": False, "cores": 1, "peak_rss": 500, "pss": 300, "others": 0.0, "tasks": []}
    counted = {"steps": int(10 * rate) // 10, "examples": int(10 * rate), "wall": 10.0, "cpu": cpu}
    return Measurement(strategy, number, **{**fixed, **counted, **values})


def comparison(*measurements: Measurement) -> Comparison:
    """A comparison with `one_core` as the base."""
    return Comparison("one_core", measurements, {}, {})


def test_efficiency_is_per_gpu_if_gpus_train():
    one, four = (
        measurement("one_device", 1, 100.0, cores=16, gpus=1),
        measurement("mirrored:4", 1, 320.0, cores=16, gpus=4),
    )
    results = {each.strategy: each.efficiency for each in Comparison("one_device", (one, four), {}, {}).results()}
    assert results == pytest.approx({"one_device": 1.0, "mirrored:4": 0.8})


def test_tasks_of_a_synchronous_cluster_are_summed():
    tasks = [task("chief-0", busy=22.0), task("worker-0", cpu=10.0, peak_rss=700, pss=400)]
    found = summed(Run(Contender("multi_worker_mirrored", 2), 3), 2, tasks)
    assert (found.strategy, found.round, found.examples, found.wall) == ("multi_worker_mirrored:2", 3, 6400, 10.0)
    assert (found.cpu, found.peak_rss, found.pss) == (18.0, 1200, 700)
    assert found.examples_per_second == 640.0
    assert found.cpu_micros_per_example == pytest.approx(1e6 * 18 / 6400)
    # Of 20 core seconds, other processes used 22 - 18.
    assert found.others == pytest.approx(0.2)


def test_a_worker_with_more_steps_than_the_chief_is_scaled_down():
    tasks = [task("chief-0"), task("ps-0", steps=0, cpu=1.0), task("worker-0", steps=125, cpu=10.0)]
    found = summed(Run(Contender("parameter_server", 2), 1), 2, tasks)
    assert found.cpu == pytest.approx(8.0 + 1.0 + 10.0 * 100 / 125)
    assert found.others == 0


def test_the_examples_fed_are_counted():
    server = task("ps-0", steps=0, own_steps=0, examples=None)
    # Of 100 steps, the chief trained 40, of 32 examples each; one batch of the worker was smaller.
    tasks = [task("chief-0", own_steps=40, examples=1280), server, task("worker-0", own_steps=61, examples=1932)]
    found = summed(Run(Contender("parameter_server", 2), 1), 2, tasks)
    assert found.examples_per_step == pytest.approx((1280 + 1932) / 101)
    assert found.examples == pytest.approx(100 * (1280 + 1932) / 101)
    # In synchronous training, each task has a part in every step.
    found = summed(Run(Contender("multi_worker_mirrored", 2), 1), 2, [task("chief-0"), task("worker-0")])
    assert (found.examples, found.examples_per_step) == (6400, 64)


def test_an_unknown_number_of_examples_is_an_error():
    with pytest.raises(UserCodeError, match="the features and labels of a step differ in their first"):
        summed(Run(Contender("mirrored", 2), 1), 2, [task("chief-0"), task("worker-0", examples=None)])


def test_a_round_is_compared_with_the_base_of_the_same_round():
    # The machine is half as fast in the second round, and a third as fast in the last.
    rates = ((1, 600.0, 900.0), (2, 300.0, 480.0), (3, 200.0, 280.0))
    rounds = [
        each
        for number, base, other in rates
        for each in (measurement("one_core", number, base), measurement("mirrored:2", number, other, cores=2))
    ]
    base, other = comparison(*rounds).results()
    assert (base.speedup, base.efficiency, base.examples_per_second) == (1.0, 1.0, 300.0)
    assert other.speedup == pytest.approx(1.5)
    assert other.efficiency == pytest.approx(0.75)
    assert other.speedups == pytest.approx((1.5, 1.6, 1.4))
    # At the pace of the second round.
    assert (other.examples_per_second, *other.rates) == pytest.approx((450.0, 450.0, 480.0, 420.0))
    assert base.rates == (600.0, 300.0, 200.0)


def test_cpu_time_of_other_processes_is_corrected_for():
    alone = measurement("one_core", 1, 100.0)
    disturbed = measurement("one_device", 1, 90.0, cores=2, others=0.5)
    found = comparison(alone, disturbed)
    _, result = found.results()
    assert (result.examples_per_second, result.speedup, result.efficiency) == pytest.approx((180.0, 1.8, 0.9))
    assert found.answer().startswith("Most examples/s: one_device, 180 (1.80x one_core, corrected for other processes")


def test_the_speedup_decides_which_strategy_is_fastest():
    # Medians of the rates, 480 and 490, are in another order than those of the speedups, 1.5 and 1.45.
    rates = ((1, 600.0, 900.0, 800.0), (2, 300.0, 480.0, 490.0), (3, 200.0, 280.0, 290.0))
    names = ("one_core", "one_device", "mirrored:2")
    found = comparison(*(measurement(name, each[0], rate) for each in rates for name, rate in zip(names, each[1:])))
    assert "s: one_device, 450 (1.50x one_core, within the noise of mirrored:2)" in found.answer()
    assert [(name, cells[1][:3]) for name, cells in rows(found)] == list(zip(names, ("300", "450", "435")))


def test_the_input_share_is_the_time_that_a_constant_batch_saves():
    constant = measurement("one_core", 1, 800.0, constant_input=True)
    later = measurement("one_core", 2, 300.0)
    (result,) = comparison(measurement("one_core", 1, 600.0), constant, later).results()
    assert result.input_share == pytest.approx(0.25)
    assert result.examples_per_second == 450.0
    # The same when other processes use half of the machine meanwhile.
    slower = measurement("one_core", 1, 400.0, constant_input=True, others=0.5)
    (result,) = comparison(measurement("one_core", 1, 600.0), slower, later).results()
    assert result.input_share == pytest.approx(0.25)


def test_unreliable_results_are_reported():
    good = [measurement("one_core", number, 100.0) for number in (1, 2)]
    assert comparison(*good).doubts() == []
    (busy,) = comparison(*good, measurement("one_device", 2, 90.0, others=0.4)).doubts()
    assert busy.startswith("Other processes took up to 40% of the cores (round 2, one_device)")
    (batches,) = comparison(*good, measurement("mirrored:2", 1, 90.0, steps=45)).doubts()
    assert batches.startswith("A step of mirrored:2 trains with 20.0 examples, one of one_core with 10.0: the speedup")
    short = measurement("one_core", 1, 100.0, wall=0.5)
    assert [doubt.split(":")[1] for doubt in comparison(short).doubts()] == [
        " raise --steps for reproducible numbers.",
        " raise --rounds.",
    ]


def test_corrected_values_are_marked_in_the_table():
    quiet = comparison(measurement("one_core", 1, 100.0), measurement("mirrored:2", 1, 150.0, cores=2))
    _, (_, other) = rows(quiet)
    assert other[3:5] == ["1.50", "0.75"]
    assert "measured" not in quiet.answer()
    # Other processes took 40 % of the two cores: as measured, slower than one core.
    busy = comparison(measurement("one_core", 1, 100.0), measurement("mirrored:2", 1, 90.0, cores=2, others=0.4))
    _, (_, other) = rows(busy)
    assert (other[1], *other[3:5]) == ("150* (90 measured)", "1.50* (0.90 measured)", "0.75*")
    assert "1.50x one_core, corrected for other processes; 0.90x as measured" in busy.answer()
    console = make_console(file := io.StringIO(), 300)
    show(busy, console)
    assert "\n* corrected for the CPU time of other processes\n" in file.getvalue()
