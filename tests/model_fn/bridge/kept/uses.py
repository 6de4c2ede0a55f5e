"""Uses a kept training as its owner does, in a process that has TensorFlow and Keras alone.

    python uses.py FUNCTION FOLDER [ARGUMENT ...]

Prints a result as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import model_fns
import numpy as np
import tensorflow as tf

STEPS = 8


def _data(count: int = 64) -> Any:
    return model_fns.dense_input(count, 8, 1)()


def _variables(network: Any, model: Any) -> dict[str, Any]:
    return {network.name_of(each): value.tolist() for each, value in zip(model.weights, model.get_weights())}


def goes_on(network: Any, scratch: str) -> dict[str, Any]:
    """Trains, saves, loads, and trains in fewer executions."""
    first = network.Training()
    first.fit(_data(), verbose=0)
    first.save(f"{scratch}/training.keras")
    model = tf.keras.models.load_model(f"{scratch}/training.keras")
    model.compile(steps_per_execution=4)
    model.fit(_data(), verbose=0, validation_data=_data())
    called = [row for features, _ in _data() for row in np.asarray(model(features)["logits"]).tolist()]
    predictions = model.predict(_data(), verbose=0)
    return {
        "variables": _variables(network, model),
        "metrics": {name: float(each) for name, each in model.evaluate(_data(), return_dict=True, verbose=0).items()},
        "logits": predictions["logits"].tolist(),
        "params": model.count_params(),
        "called": called,
    }


def exports(network: Any, scratch: str) -> dict[str, Any]:
    """Trains, and exports; returns the predictions as well."""
    model = network.Training()
    data = _data() if "labels" in model.takes else model_fns.text_input().take(6)
    model.fit(data, verbose=0)
    model.export_saved_model(f"{scratch}/kept")
    return {"logits": model.predict(data, verbose=0)["logits"].tolist()}


def callbacks(network: Any, scratch: str) -> dict[str, Any]:
    """Trains under Keras's callbacks."""
    kinds, found = tf.keras.callbacks, {}
    model = network.Training()
    before = model.get_weights()
    still = [each.trainable for each in model.weights]
    model.fit(_data(), verbose=0, callbacks=[kinds.LearningRateScheduler(lambda epoch, rate: 0.0)])
    found["still"] = all(np.array_equal(a, b) for a, b, is_one in zip(before, model.get_weights(), still) if is_one)
    model = network.Training()
    reduce = kinds.ReduceLROnPlateau(monitor="loss", min_delta=100.0, patience=1, factor=0.5)
    model.fit(_data(), epochs=3, verbose=0, callbacks=[reduce])
    found["factor"] = float(np.asarray(model.optimizer.learning_rate))
    model = network.Training()
    stop = kinds.EarlyStopping("val_loss", min_delta=100.0, patience=2, restore_best_weights=True)
    save = kinds.ModelCheckpoint(scratch + "/{epoch}.weights.h5", save_weights_only=True)
    model.fit(_data(), epochs=9, verbose=0, validation_data=_data(), callbacks=[stop, save])
    best = network.Training()
    best.load_weights(f"{scratch}/1.weights.h5")
    found["best"] = [int(best.get_weights()[0]), int(model.get_weights()[0]), len(list(Path(scratch).glob("*.h5")))]
    found["restored"] = _variables(network, best) == _variables(network, model)
    whole = network.Training()
    whole.fit(_data(), epochs=3, verbose=0)

    class Killed(kinds.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise KeyboardInterrupt

    again = []
    for more in ([Killed()], []):
        model = network.Training()
        try:
            model.fit(_data(), epochs=3, verbose=0, callbacks=[kinds.BackupAndRestore(f"{scratch}/backup"), *more])
        except KeyboardInterrupt:
            continue
        again.append(_variables(network, model) == _variables(network, whole))
    found["backup"] = again
    return found


def replicas(network: Any, scratch: str) -> dict[str, Any]:
    """Trains by two replicas, whose last batch has one example, and by one."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    reduction = tf.distribute.ReductionToOneDevice()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], reduction).scope():
        try:
            model = network.Training()
        except ValueError as error:
            return {"refused": str(error)}
    one = network.Training()
    for steps in (1, 4):
        model.compile(steps_per_execution=steps)
        losses = [each.fit(_data(57), verbose=0).history["loss"] for each in (model, one)]
    return {
        "apart": max(float(np.abs(a - b).max()) for a, b in zip(model.get_weights(), one.get_weights())),
        "copies": _are_equal(network, model),
        "losses": losses,
        "step": int(model.get_weights()[0]),
        "metrics": [each.evaluate(_data(), verbose=0) for each in (model, one)],
    }


def averages(network: Any, scratch: str) -> dict[str, Any]:
    """Trains by two replicas, of which one has no example of the last batch."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()).scope():
        model = network.Training()
    loss = model.fit(_data(57), verbose=0).history["loss"]
    return {"copies": _are_equal(network, model), "loss": loss, "averages": sorted(network.PER_REPLICA)}


def _are_equal(network: Any, model: Any) -> bool:
    one, other = ([each.numpy().tolist() for each in network.saved(copy)] for copy in model.copies)
    return one == other


def once(network: Any, scratch: str) -> dict[str, Any]:
    """Trains on one device."""
    model = network.Training()
    model.fit(_data(), verbose=0)
    return {"variables": _variables(network, model)}


def workers(network: Any, scratch: str) -> dict[str, Any]:
    """Trains by two workers with a loop, each on its half of the batches."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    index = int(not (child := os.fork()))
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = network.Training()
    data = _data(64).unbatch().batch(4).shard(2, index)
    step = tf.function(lambda batch: strategy.run(model.train_step, args=(batch,)))
    for batch in data:
        step(batch)
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return {"variables": _variables(network, model)}


def evaluates(network: Any, scratch: str) -> dict[str, Any]:
    """Evaluates by two replicas and by one, after a step whose halves are also trained alone."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()).scope():
        model = network.Training()
    one, halves = network.Training(), [network.Training() for _ in range(2)]
    before = one.get_weights()
    history = model.fit(_data().take(1), verbose=0, validation_data=_data(57)).history
    for index, half in enumerate(halves):
        half.fit(_data().take(1).unbatch().batch(4).skip(index).take(1), verbose=0)
    one.set_weights(model.get_weights())
    predicted = [each.predict(_data(57), verbose=0)["logits"].tolist() for each in (model, one)]
    return {
        "validated": {name.removeprefix("val_"): each[0] for name, each in history.items() if name.startswith("val_")},
        "metrics": [each.evaluate(_data(57), verbose=0, return_dict=True) for each in (model, one)],
        "predicted": predicted,
        "moved": {
            network.name_of(each): [(new - old).tolist() for new in news]
            for each, old, *news in zip(model.weights, before, *(one.get_weights() for one in (model, *halves)))
        },
    }


def current(network: Any, scratch: str) -> dict[str, Any]:
    """Takes other weights after each way to predict and to evaluate has been used."""
    x, y = model_fns._arrays(8)
    model = network.Training()
    compiled = tf.function(lambda given: model(given)["logits"])

    def answers() -> list[Any]:
        ways = (
            compiled(x),
            model(x)["logits"],
            model.predict_on_batch(x)["logits"],
            model.predict(x, verbose=0)["logits"],
        )
        return [np.asarray(each).tolist() for each in ways]

    def metrics() -> list[Any]:
        return [model.test_on_batch(x, y), model.evaluate(x, y, batch_size=8, verbose=0)]

    found = [answers(), metrics()]
    model.set_weights([each * 0 for each in model.get_weights()])
    return {"before": found, "after": [answers(), metrics()]}


def files(network: Any, scratch: str, other: str) -> dict[str, Any]:
    """Saves and loads beside another training, and to files that cannot have weights; trains with weights."""
    trained = network.Training()
    trained.set_weights([each * 2 for each in trained.get_weights()])
    trained.save(f"{scratch}/one.keras")
    trained.save_weights(f"{scratch}/one.weights.h5")
    again = network.Training()
    again.load_weights(f"{scratch}/one.weights.h5")
    spec = importlib.util.spec_from_file_location("network", f"{other}/network.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    x, y = model_fns._arrays(8)
    refused = []
    for function in (
        lambda: trained.save_weights(f"{scratch}/one.h5"),
        lambda: trained.load_weights(f"{scratch}/one.h5"),
        lambda: trained.save(f"{scratch}/one.h5"),
        lambda: trained.fit(x, y, sample_weight=np.ones(8), verbose=0),
        lambda: trained.evaluate(x, y, sample_weight=np.ones(8), verbose=0),
    ):
        try:
            function()
        except ValueError as error:
            refused.append(str(error).strip().rpartition("\n")[2].strip())
    loaded = tf.keras.models.load_model(f"{scratch}/one.keras")
    return {
        "own": type(loaded) is network.Training,
        "equal": [_variables(network, each) == _variables(network, trained) for each in (loaded, again)],
        "refused": refused,
    }


def refused(network: Any, scratch: str) -> list[str]:
    """Trains on other shapes, and multiplies a rate that nothing can multiply."""
    found = []
    for data, rate in ((_data().map(lambda x, y: ({"x": x["x"][:, :4]}, y)), 1.0), (_data(), 0.5)):
        model = network.Training()
        model.optimizer.learning_rate = rate
        try:
            model.fit(data, verbose=0)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            found.append(str(error))
    return found


if __name__ == "__main__":
    function, folder, *scratch = sys.argv[1:]
    sys.path.insert(0, folder)
    import network

    assert not [name for name in sys.modules if name.startswith(("tfx", "tensorflow_estimator"))]
    print(json.dumps(globals()[function](network, *scratch), default=float))
