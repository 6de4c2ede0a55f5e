"""What the field calls otherwise, or knows and this version refuses: the nearest name, or the reason."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit

TRAIN, EVAL = "trainer.distribution.train", "trainer.distribution.eval"
# What was written, and the value or key that it is taken for.
NEAREST: list[tuple[str, str]] = [
    ("{train: {strategy: miror}}", "mirrored"),
    ("{train: {strategy: MirroredStrategy}}", "mirrored"),
    ("{train: {strategy: MultiWorkerMirroredStrategy}}", "multi_worker_mirrored"),
    ("{train: {strategy: ParameterServerStrategy}}", "parameter_server"),
    ("{train: {strategy: mirrored, cross_device_ops: hierarchical}}", "hierarchical_copy"),
    ("{strategy: mirrored}", f"{TRAIN}.strategy"),
    ("{train: {num_workers: 2}}", f"{TRAIN}.workers"),
    ("{train: {num_gpus: 2}}", f"{TRAIN}.devices.gpu"),
    ("{eval: {num_gpus: 2}}", f"{EVAL}.devices.gpu"),
    ("{train: {max_restarts: 2}}", "trainer.distribution.max_restarts"),
]


@pytest.mark.parametrize(("distribution", "meant"), NEAREST)
def test_the_nearest_value_or_key_is_named(problems, good, distribution, meant):
    [problem] = problems(f"{good}  distribution: {distribution}\n")
    assert problem.startswith("mine.yaml:8  trainer.distribution.")
    assert problem.endswith(f"to do:    did you mean `{meant}`?")


@pytest.mark.parametrize(
    ("distribution", "said"),
    [
        ("{train: {strategy: none}}", "`none`: it is called one_device here"),
        ("{train: {strategy: collective_all_reduce}}", "it is called multi_worker_mirrored here"),
        ("{eval: {strategy: tpuu}}", "choose one of: one_device, mirrored, central_storage (`tpu`: this version eval"),
        ("{train: 'mirored:2'}", "did you mean `mirrored`?"),
        ("{train: 'mirrored:0'}", "no number from 1 to 64"),
        ("{train: 'multi_worker_mirrored:99'}", "at most 64"),
        ("{eval: 'multi_worker_mirrored:2'}", "only training runs in a cluster"),
        ("{train: {devices: true}}", "true/false is no section"),
        ("{train: {devices: {cpu: 0}}}", "no number from 1 to 64"),
        ("{throttle_secs: 0}", "at least 1"),
    ],
)
def test_values_that_cannot_be(problems, good, distribution, said):
    assert any(said in problem for problem in problems(f"{good}  distribution: {distribution}\n"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("  augment: [nonsense]", "unknown"),
        ("  augment: [{random_crop: {patience: 2}}]", "unknown key `patience`"),
        (
            "  distribution: {train: {strategy: parameter_server, variable_partitioner: {patienc: 1}}}",
            "unknown key",
        ),
    ],
)
def test_what_is_only_like_a_key_of_another_section_is_not_taken_for_it(problems, good, lines, told):
    [problem] = problems(f"{good}{lines}\n")
    assert told in problem
    assert "did you mean" not in problem


def test_a_metric_that_is_near_a_known_one_is_asked_for(problems, good):
    [problem] = problems(f"{good.replace('mnist_cnn', 'json:dumps')}  keep_best: accuray\n")
    assert "did you mean `accuracy`? set trainer.keep_best.mode" in problem
