"""Techniques that change nothing under the declared strategy: noted, and nothing else is."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config import notes as module
from tfx_estimator.pipeline.config.render import render

pytestmark = pytest.mark.unit

ALONE = "strategy: multi_worker_mirrored, workers: 1"
NOBODY = "has no effect: there is one replica, which sends its gradients to nobody"


@pytest.mark.parametrize(
    ("train", "more", "said"),
    [
        (ALONE, "sync_every: 4", "trainer.sync_every has no effect: trainer.distribution.train.workers is 1, which"),
        (f"{ALONE}, gradient_compression: bf16", "", f"trainer.distribution.train.gradient_compression {NOBODY}"),
        (f"{ALONE}, bytes_per_pack: 65536", "", f"trainer.distribution.train.bytes_per_pack {NOBODY}"),
        ("strategy: mirrored, gradient_compression: fp16", "", f"gradient_compression {NOBODY}"),
        (
            "strategy: mirrored, devices: {gpu: 1}, cross_device_ops: nccl, num_packs: 2",
            "",
            f"trainer.distribution.train.num_packs {NOBODY}",
        ),
        (
            "strategy: mirrored, devices: {cpu: 2}, gradient_compression: bf16",
            "",
            "gradient_compression saves nothing on logical CPUs, which have one memory",
        ),
        ("strategy: multi_worker_mirrored, workers: 2, gradient_compression: bf16", "", ""),
        ("strategy: multi_worker_mirrored, gradient_compression: bf16, bytes_per_pack: 65536", "", ""),
        (f"{ALONE}, devices: {{gpu: 2}}, gradient_compression: bf16, bytes_per_pack: 65536", "", ""),
        ("strategy: mirrored, devices: {gpu: 2}, gradient_compression: bf16", "", ""),
        ("strategy: multi_worker_mirrored", "sync_every: 4", ""),
        (ALONE, "", ""),
    ],
)
def test_what_sends_nothing_is_noted(write, good, monkeypatch, train, more, said):
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    write(f"{good}  path: keras\n  {more}\n  distribution: {{train: {{{train}}}}}\n")
    loaded = load("mine.yaml")
    assert len(loaded.notes) == bool(said), loaded.notes
    assert said in "".join(loaded.notes)
    # What `show` prints is noted alike.
    write(render(loaded.declaration.dict()), "again.yaml")
    assert load("again.yaml").notes == loaded.notes


def test_of_gpus_that_nobody_counted_nothing_is_said(write, good, monkeypatch):
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    write(f"{good}  distribution: {{train: {{strategy: mirrored, gradient_compression: fp16}}}}\n")
    assert load("mine.yaml").notes == ()
