"""Which candidates can be compared, and mistakes that are reported before training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.experiments.compare.candidates import find_candidates

TEXT = """\
name: {name}
data: {{dataset: digits, splits: {{train: "train[:80%]", eval: "train[80%:]"}}, shards: {shards}}}
trainer: {{model: mnist_cnn, train_steps: {steps}}}
"""


def write(folder: Path, name: str = "own", shards: int = 2, steps: int = 5, more: str = "") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(TEXT.format(name=name, shards=shards, steps=steps) + more)
    return str(path)


def refused(*sources: str, overrides=(), vary=()) -> str:
    """Returns the error for candidates that cannot be compared."""
    with pytest.raises(DeclarationError) as caught:
        find_candidates(sources, overrides, vary)
    return str(caught.value)


def test_one_declaration_is_varied_in_all_combinations_and_the_first_is_the_base():
    found = find_candidates(
        ["digits"], ["trainer.train_steps=7"], ["trainer.seed=1, 2", "trainer.optimizer.name=sgd,adam"]
    )
    assert [each.name for each in found] == [
        "seed=1, name=sgd",
        "seed=1, name=adam",
        "seed=2, name=sgd",
        "seed=2, name=adam",
    ]
    assert [(each.values["trainer.seed"], each.values["trainer.optimizer.name"]) for each in found][1] == (1, "adam")
    assert {each.values["trainer.train_steps"] for each in found} == {7}


def test_a_varied_key_cannot_be_set_but_its_section_can():
    message = refused(
        "digits", overrides=["trainer.optimizer.learning_rate=1"], vary=["optimizer={name: sgd},{name: adam}"]
    )
    assert "is varied as well, by --vary" in message
    names = [
        each.values["trainer.optimizer.name"]
        for each in find_candidates(["digits"], ["trainer.optimizer={name: sgd}"], ["optimizer.learning_rate=0.1,0.2"])
    ]
    assert names == ["sgd", "sgd"]


def seeds_of(*sources: str, overrides=(), vary=(), repeat: int = 3) -> list[tuple[str, int, int]]:
    found = find_candidates(sources, overrides, vary, repeat)
    return [(each.label, each.seed, each.values["trainer.seed"]) for each in found]


def test_each_is_repeated_under_the_seeds_that_follow_its_own():
    assert seeds_of("digits", overrides=["trainer.seed=7"], vary=["trainer.train_steps=5,6"]) == [
        (f"train_steps={steps}, seed {seed}", seed, seed) for steps in (5, 6) for seed in (7, 8, 9)
    ]
    # Other seeds of the same declaration, to see the effect of seeds alone.
    assert [seed for _, seed, _ in seeds_of("digits", vary=["trainer.seed=1,3"], repeat=2)] == [1, 2, 3, 4]


def test_a_declaration_that_is_named_twice_has_distinct_seeds(tmp_path):
    assert seeds_of("digits", "digits", overrides=["trainer.seed=7"]) == [
        (f"digits ({1 + index // 3}), seed {7 + index}", 7 + index, 7 + index) for index in range(6)
    ]
    # Another name is the same training; another network is not.
    same = [write(tmp_path / "a", name) for name in ("one", "two", "three")]
    assert [seed for _, seed, _ in seeds_of(*same, repeat=2)] == [42, 43, 44, 45, 46, 47]
    for folder, units in (("a", 1), ("b", 2)):
        (file := Path(write(tmp_path / folder))).write_text(file.read_text().replace("mnist_cnn", "mine:network"))
        file.with_name("mine.py").write_text(f"def network(classes):\n    return {units}\n")
    others = [str(tmp_path / name / "own.yaml") for name in ("a", "b")]
    assert [seed for _, seed, _ in seeds_of(*others, repeat=2)] == [42, 43, 42, 43]


def test_seeds_that_would_share_trainings_are_moved_apart():
    assert [seed for _, seed, _ in seeds_of("digits", vary=["trainer.seed=1,2"])] == [*range(1, 7)]


def test_a_finished_run_cannot_be_repeated(leave_run, cli):
    with pytest.raises(DeclarationError, match="--repeat 3"):
        find_candidates(["digits", str(leave_run("20261122-010101"))], [], [], repeat=3)
    assert "--repeat 0" in cli("compare", "digits", "digits", "--repeat", "0", code=2).err


def test_runs_and_declarations_can_be_mixed(tmp_path, leave_run):
    found = find_candidates(["digits", str(leave_run("20261122-010101"))], [], [])
    assert [(each.name, each.loaded is None) for each in found] == [("digits", False), ("own 20261122-010101", True)]
    assert found[1].values["trainer.train_steps"] == 5


def test_equal_declarations_of_two_networks_are_compared(tmp_path):
    sources = [write(tmp_path / name) for name in ("a", "b")]
    for source, units in zip(sources, (1, 2)):
        Path(source).write_text(Path(source).read_text().replace("mnist_cnn", "mine:network"))
        Path(source).with_name("mine.py").write_text(f"def network(classes):\n    return {units}\n")
    assert len(find_candidates(sources, [], [])) == 2


def test_different_examples_are_refused_with_the_differing_keys(tmp_path):
    message = refused(write(tmp_path, "one", shards=2), write(tmp_path, "two", shards=3))
    assert "one and two are not trained on the same examples" in message
    assert "data.shards: 2 in" in message
    assert "3 in" in message
    assert "train_steps" not in message
    assert "data.shards" in refused("digits", vary=["data.shards=2,3"])


def test_preprocessing_fns_of_the_same_name_are_compared_by_source(tmp_path):
    more = 'transform: {preprocessing_fn: "mine:scale"}\n'
    sources = [write(tmp_path / name, more=more, steps=steps) for name, steps in (("a", 5), ("b", 6))]
    for name, factor in (("a", 255), ("b", 127)):
        (tmp_path / name / "mine.py").write_text(f"def scale(inputs):\n    return inputs / {factor}\n")
    assert "the source of transform" in refused(*sources)
    (tmp_path / "b" / "mine.py").write_text((tmp_path / "a" / "mine.py").read_text())
    assert len(find_candidates(sources, [], [])) == 2


@pytest.mark.parametrize(
    ("sources", "overrides", "vary", "words"),
    [
        (["digits"], [], [], "there is 1 to compare"),
        (["digits"], [], ["trainer.seed=1"], "vary more"),
        (["digits"], [], ["trainer.seed=1,2,3,4,5,6,7,8,9"], "there are 9 to compare"),
        (["digits", "mnist"], [], ["trainer.seed=1,2"], "--vary with 2 sources"),
        (["digits"], [], ["trainer.seed"], "--vary trainer.seed: this cannot be read"),
        (["digits"], [], ["trainer.train_steps=5,0"], "--vary trainer.train_steps=0  trainer.train_steps: 0"),
        (["digits", "no/such/folder"], [], [], "no/such/folder"),
        (["digits", "mnist"], ["trainer.train_steps=0"], [], "trainer.train_steps"),
    ],
)
def test_a_mistake_is_reported(sources, overrides, vary, words):
    assert words in refused(*sources, overrides=overrides, vary=vary)


def test_nothing_can_be_set_in_finished_runs(leave_run):
    logs = [str(leave_run(f"20261122-01010{number}")) for number in (1, 2)]
    assert "--set" in refused(*logs, overrides=["trainer.seed=1"])
    assert "--vary" in refused(logs[0], vary=["trainer.seed=1,2"])


@pytest.mark.parametrize("points", ["-1", "101", "nan"])
def test_require_equal_takes_points_of_accuracy(points, cli):
    words = ("digits", "--vary", "trainer.seed=1,2", f"--require-equal={points}")
    assert "out of range" in cli("compare", *words, code=2).err


def test_a_run_without_a_model_is_refused_before_training(tmp_path, leave_run, cli):
    """A run that failed, and one that was killed."""
    failed = leave_run("20261122-010101", components=[], state="failed")
    killed = leave_run("20261122-010102")
    for logs, words in ((failed, "metadata.sqlite"), (killed, "has no summary.json")):
        stderr = cli("compare", "digits", str(logs), "--workdir", str(tmp_path / "runs"), code=2).err
        assert words in stderr
        assert "to do:    name another run" in stderr
    assert not (tmp_path / "runs" / "digits" / "artifacts").exists()
