"""The copy of the best checkpoint, and what is exported if it cannot be read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.best.decision import Record
from tfx_estimator.components.trainer.best.keeper import Keeper, says_stop
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection


class Fake:
    """A training whose checkpoints are texts, of which the two newest stay."""

    def __init__(self, folder: Path, **section) -> None:
        self.folder = folder
        self.section = TrainerSection.parse_obj({"model": "mnist_cnn", "train_steps": 100, **section})
        self.events = ProgressReader(str(folder / "progress"))
        self.start()

    def start(self) -> None:
        """Makes the keeper of a restarted task."""
        progress = ProgressWriter(str(self.folder / "progress"))
        self.keeper = Keeper(str(self.folder), self.section, self.damage, progress)

    def damage(self, path: str) -> str | None:
        return None if "whole" in Path(f"{path}.data-00000-of-00001").read_text() else "not whole"

    def checkpoint(self, step: int) -> str:
        return str(self.folder / f"model.ckpt-{step}")

    def save(self, step: int, text: str = "whole") -> None:
        for ending in ("data-00000-of-00001", "index", "meta"):
            Path(f"{self.checkpoint(step)}.{ending}").write_text(f"{text} {step}")
        steps = sorted({int(path.stem.rpartition("-")[2]) for path in self.folder.glob("model.ckpt-*.index")})
        for old in steps[:-2]:
            for path in self.folder.glob(f"model.ckpt-{old}.*"):
                path.unlink()

    def train(self, *losses: float, first: int = 10) -> None:
        for number, loss in enumerate(losses):
            step = first + 10 * number
            self.save(step)
            self.keeper.evaluated(step, {"loss": loss, "accuracy": 1 - loss}, self.checkpoint(step))

    def kept(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "best").glob("best.*"))

    def choose(self, step: int) -> str:
        return Path(self.keeper.choose(self.checkpoint(step), step).checkpoint).name

    def reported(self, kind: Event) -> list[dict]:
        return [event for event in self.events.read() if event["event"] is kind]


def copies(step: int) -> list[str]:
    return [f"best.ckpt-{step}.{ending}" for ending in ("data-00000-of-00001", "index", "meta")]


def test_the_best_is_kept_when_training_has_removed_it(tmp_path):
    fake = Fake(tmp_path, keep_best="loss")
    fake.train(0.5, 0.2, 0.4, 0.3, 0.9)
    assert fake.kept() == copies(20)
    assert not Path(f"{fake.checkpoint(20)}.index").exists()
    assert fake.choose(50) == "best.ckpt-20"
    (event,) = fake.reported(Event.CHOSEN)
    assert (event["step"], event["metrics"]) == (20, {"loss": 0.2, "accuracy": 0.8})
    assert event["text"] == "step 20: the best loss, 0.2000, of 5 evaluations; the last, of step 50: 0.9000"


def test_ties_keep_the_earlier_and_a_step_of_0_does_not_count(tmp_path):
    fake = Fake(tmp_path, keep_best="accuracy")
    fake.train(0.0, 0.5, 0.5, first=0)
    assert fake.kept() == copies(10)
    assert [each.step for each in Record.load(str(tmp_path))] == [10, 20]


def test_a_restarted_task_keeps_the_best_and_the_count_of_evaluations_without_improvement(tmp_path):
    fake = Fake(tmp_path, keep_best="loss", early_stopping={"metric": "loss", "patience": 2})
    fake.train(0.5, 0.2, 0.4)
    assert not fake.keeper.stops
    fake.start()
    fake.keeper.resume_from(30)
    assert fake.keeper.knows(30)
    assert not fake.keeper.knows(40)
    fake.train(0.3, first=40)
    assert fake.keeper.stops
    assert says_stop(str(tmp_path), fake.section)
    fake.start()
    assert fake.keeper.stops
    assert fake.choose(40) == "best.ckpt-20"
    events = fake.events.read()
    (early,) = (event for event in events if event["event"] is Event.ENDED_EARLY)
    assert early["text"] == "at step 40 of 100: loss has not improved on 0.2000, of step 20, for 2 evaluations"
    # The process of the last evaluation ended before it could report the result: this one reports it.
    (evaluated,) = (event for event in events if event["event"] is Event.EVALUATED)
    assert (evaluated["step"], evaluated["metrics"]["loss"]) == (40, 0.3)


def test_a_training_that_resumes_from_an_earlier_step_drops_later_evaluations(tmp_path):
    fake = Fake(tmp_path, keep_best="loss", early_stopping={"metric": "loss", "patience": 2})
    fake.train(0.5, 0.4, 0.1, 0.2, 0.3)
    assert fake.keeper.stops
    fake.start()
    for step in (40, 50):
        for path in tmp_path.glob(f"model.ckpt-{step}.*"):
            path.unlink()
    fake.keeper.resume_from(20)
    assert not fake.keeper.stops
    # The same step again, with other weights.
    fake.save(30, "whole, again")
    fake.keeper.evaluated(30, {"loss": 0.3, "accuracy": 0.7}, fake.checkpoint(30))
    assert fake.kept() == copies(30)
    assert "again" in (tmp_path / "best" / "best.ckpt-30.index").read_text()


def test_the_next_best_replaces_a_damaged_best(tmp_path):
    fake = Fake(tmp_path, keep_best="loss")
    fake.train(0.5, 0.2, 0.6, 0.3, 0.4)
    (tmp_path / "best" / "best.ckpt-20.data-00000-of-00001").write_text("torn")
    assert fake.choose(50) == "model.ckpt-40"
    events = fake.events.read()
    (notice,) = (event["text"] for event in events if event["event"] is Event.NOTICED)
    assert "the checkpoint of step 20, loss 0.2000, cannot be exported (it is damaged: not whole)" in notice
    assert [event["step"] for event in events if event["event"] is Event.CHOSEN] == [40]


def test_the_next_best_replaces_a_missing_best_and_is_kept(tmp_path):
    fake = Fake(tmp_path, keep_best="loss")
    fake.train(0.5, 0.2, 0.6, 0.3)
    for path in (tmp_path / "best").iterdir():
        path.unlink()
    fake.train(0.4, 0.9, 0.9, first=50)
    assert fake.kept() == copies(40)
    assert fake.choose(70) == "best.ckpt-40"
    assert ["it is gone" in event["text"] for event in fake.reported(Event.NOTICED)] == [True]


def test_an_evaluation_whose_checkpoint_was_removed_meanwhile_is_no_candidate(tmp_path):
    fake = Fake(tmp_path, keep_best="loss")
    fake.train(0.5)
    fake.keeper.evaluated(20, {"loss": 0.1, "accuracy": 0.9}, fake.checkpoint(20))
    fake.train(0.4, first=30)
    assert fake.kept() == copies(30)
    assert fake.choose(30) == "best.ckpt-30"


def test_a_copy_of_an_abandoned_step_is_not_used_for_the_repeated_step(tmp_path):
    fake = Fake(tmp_path, keep_best="loss")
    fake.train(0.5, 0.2)
    fake.train(0.4)
    # The second one of step 20 was removed before it could be kept.
    for path in tmp_path.glob("model.ckpt-20.*"):
        path.unlink()
    fake.keeper.evaluated(20, {"loss": 0.3, "accuracy": 0.7}, fake.checkpoint(20))
    assert fake.kept() == copies(10)


def test_without_a_best_one_the_last_one_is_exported(tmp_path):
    fake = Fake(tmp_path, keep_best="loss")
    fake.train(math.nan, math.nan)
    assert fake.choose(20) == "model.ckpt-20"
    events = fake.events.read()
    assert [event["text"] for event in events if event["event"] is Event.NOTICED] == [
        "no evaluated checkpoint is best by loss: the last one is exported"
    ]


def test_without_keep_best_the_last_one_is_exported_and_nothing_is_copied(tmp_path):
    fake = Fake(tmp_path, early_stopping={"metric": "loss", "patience": 1})
    fake.train(0.2, 0.4)
    assert fake.keeper.stops
    assert fake.kept() == []
    assert fake.choose(20) == "model.ckpt-20"
    assert fake.reported(Event.CHOSEN) == []


@pytest.mark.parametrize("key", ["keep_best", "early_stopping"])
def test_the_error_of_a_missing_metric_lists_the_reported_ones(tmp_path, key):
    fake = Fake(tmp_path, **{key: "auc"})
    fake.save(10)
    with pytest.raises(UserCodeError) as caught:
        fake.keeper.evaluated(10, {"loss": 1.0, "accuracy": 0.5}, fake.checkpoint(10))
    assert f"trainer.{key}.metric: the evaluation reports no `auc`" in str(caught.value)
    assert "one of accuracy, loss" in str(caught.value)


def test_a_models_unknown_metrics_are_read_before_training(tmp_path):
    calls = []

    def reported():
        calls.append(True)
        return {"loss", "accuracy"}

    built_in = Fake(tmp_path, early_stopping="auc")
    with pytest.raises(UserCodeError, match=r"early_stopping\.metric: the evaluation reports no `auc`") as caught:
        built_in.keeper.check_metrics(reported)
    assert "one of accuracy, average_loss, loss" in str(caught.value)
    Fake(tmp_path, keep_best="average_loss").keeper.check_metrics(reported)
    assert not calls
    with pytest.raises(UserCodeError, match=r"keep_best\.metric: the evaluation reports no `auc`"):
        Fake(tmp_path, model="mine:net", keep_best="auc").keeper.check_metrics(reported)
    own = Fake(tmp_path, model="mine:net", keep_best="loss")
    own.keeper.check_metrics(reported)
    assert len(calls) == 2
    # An earlier evaluation has the names.
    own.train(0.5)
    own.keeper.check_metrics(reported)
    assert len(calls) == 2


def test_decisions_are_texts_in_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    fake = Fake(tmp_path, keep_best="loss", early_stopping={"metric": "loss", "patience": 1})
    fake.train(0.2, 0.4)
    fake.choose(20)
    values = [
        (event.step, value.tag, value.tensor.string_val[0].decode())
        for path in (tmp_path / "best").glob("*tfevents*")
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]
    assert (10, "exported") in [value[:2] for value in values]
    assert (20, "stopped early") in [value[:2] for value in values]
    assert any("the best loss, 0.2000" in value[2] for value in values)
