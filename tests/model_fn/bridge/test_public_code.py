"""Public code of TensorFlow 1 runs without an edit, on made-up data.

`TFX_ESTIMATOR_PUBLIC_CODE` names a folder with checkouts: `bert` and `electra` of google-research, `DeepCTR` of
shenweichen, `tf_repos` of lambdaji, `ranking` of tensorflow, and `official`, the unpacked wheel tf-models-official
0.0.3.dev1; and, for trainings that are kept, `cloudml-samples` and `training-data-analyst` of GoogleCloudPlatform,
`deeplearning` of yangxudong and `tensorflow-triplet-loss` of omoindrot. What is not there is skipped.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.artifacts import example, write_records
from tests.bench.ctr import write_csv
from tests.e2e.conftest import open_metadata
from tests.root import ROOT, run_python

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
FOLDER = os.environ.get("TFX_ESTIMATOR_PUBLIC_CODE")
BERT, DRAWN, PIPELINE, DEEPCTR = (
    Path(__file__).with_name(name) for name in ("bert", "drawn_weights.py", "public_pipeline.py", "deepctr")
)
WORDS = [f"w{number}" for number in range(80)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", *WORDS]
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
CENSUS = "Private|State-gov;Bachelors|HS-grad;Divorced|Never-married;Sales|Craft-repair;Wife|Husband"


@pytest.fixture
def numbers() -> random.Random:
    return random.Random(0)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs a program of a checkout with --tf1; returns what it printed."""

    def run(checkout: str, *words: object, at: str = "", tf1: bool = True) -> str:
        return run_beside(checkout, "-m", "tfx_estimator.estimator", *(["--tf1"] if tf1 else []), *words, at=at)

    return run


def run_beside(checkout: str, *words: object, at: str = "") -> str:
    """Runs Python in a checkout, with its modules; returns what it printed."""
    place = Path(FOLDER or "none") / checkout
    if not place.is_dir():
        pytest.skip(f"TFX_ESTIMATOR_PUBLIC_CODE names no folder with {checkout}")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(place), os.environ.get("PYTHONPATH", "")])
    done = run_python(*map(str, words), cwd=place / at, timeout=870, PYTHONPATH=path, code=0)
    return done.stdout + done.stderr


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., tuple[Any, list[bytes], dict[str, tf.Tensor]]]:
    """Runs a pipeline on records; returns the model_run, examples of its evaluation, and what is served for them."""

    def run(checkout: str, module: Path, arguments: dict[str, Any]) -> tuple[Any, list[bytes], dict[str, tf.Tensor]]:
        run_beside(checkout, PIPELINE, tmp_path, module, json.dumps(arguments))
        (run,) = open_metadata(tmp_path).get_artifacts_by_type("ModelRun")
        assert tf.train.latest_checkpoint(f"{run.uri}/Format-Serving").endswith("/model.ckpt-20")
        (files,) = tmp_path.glob("artifacts/ImportExampleGen/examples/*/Split-eval/*")
        records = list(tf.data.TFRecordDataset(str(files), "GZIP").as_numpy_iterator())
        (pushed,) = (tmp_path / "pushed").iterdir()
        signature = tf.saved_model.load(str(pushed)).signatures["serving_default"]
        return run, records, signature(examples=tf.constant(records))

    return run


@pytest.fixture
def text(tmp_path: Path, numbers: random.Random) -> Path:
    """Makes sentences with `good` or `bad` in them, questions for the place of `good`, a vocabulary and a model."""

    def sentence(word: str, length: int) -> str:
        words = numbers.choices(WORDS, k=length)
        words[numbers.randrange(length)] = word
        return " ".join(words)

    def lines(count: int) -> str:
        return "".join(f"x\t{each % 2}\t\t{sentence(('bad', 'good')[each % 2], 8)}\n" for each in range(count))

    def squad(count: int) -> dict:
        paragraphs = []
        for number in range(count):
            context = sentence("good", 30)
            answer = {"text": "good", "answer_start": context.index("good")}
            paragraphs.append({"context": context, "qas": [{"id": number, "question": "where ?", "answers": [answer]}]})
        return {"data": [{"title": "", "paragraphs": paragraphs}]}

    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    config = {"vocab_size": len(VOCABULARY), "max_position_embeddings": 64, "type_vocab_size": 2, **SMALL}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "train.tsv").write_text(lines(256))
    (tmp_path / "dev.tsv").write_text(lines(64))
    (tmp_path / "test.tsv").write_text("index\tsentence\n" + "".join(f"{each}\tgood w1\n" for each in range(16)))
    (tmp_path / "squad.json").write_text(json.dumps(squad(32)))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("\n".join(sentence("good", 12) for _ in range(200)))
    return tmp_path


def test_bert_classifies(run, text):
    files = (f"--vocab_file={text}/vocab.txt", f"--bert_config_file={text}/config.json", f"--data_dir={text}")
    does = ("--do_train", "--do_eval", "--do_predict", "--num_train_epochs=10", "--learning_rate=1e-3")
    run("bert", "run_classifier.py", "--task_name=cola", *files, *does, "--max_seq_length=16", f"--output_dir={text}/o")
    results = dict(line.split(" = ") for line in (text / "o" / "eval_results.txt").read_text().splitlines())
    assert float(results["eval_accuracy"]) > 0.9
    assert int(results["global_step"]) == 80
    assert len((text / "o" / "test_results.tsv").read_text().splitlines()) == 16


def test_bert_answers_questions(run, text):
    files = (f"--vocab_file={text}/vocab.txt", f"--bert_config_file={text}/config.json", f"--output_dir={text}/o")
    data = (f"--train_file={text}/squad.json", f"--predict_file={text}/squad.json", "--max_seq_length=48")
    sizes = ("--doc_stride=16", "--max_query_length=8", "--train_batch_size=16", "--num_train_epochs=2")
    run("bert", "run_squad.py", *files, *data, *sizes, "--do_train", "--do_predict")
    assert len(json.loads((text / "o" / "predictions.json").read_text())) == 32


# Weights, two moments of each, and the global step; two copies; none apart.
BERTS_COPIES = [124, 2, []]


def copies(output: str) -> list:
    return json.loads(output[output.rindex("copies: ") :].splitlines()[0].partition(": ")[2])


def test_bert_under_two_replicas_keeps_their_copies_equal(run, text):
    assert copies(run("bert", BERT / "replicas.py", text)) == BERTS_COPIES


@pytest.mark.timeout(1200)
def test_berts_trainer_fn_in_a_pipeline_keeps_the_copies_of_two_replicas_equal(pipeline, tmp_path, numbers):
    def tokens(label: int) -> dict[str, Any]:
        ids = [2, *numbers.choices(range(7, len(VOCABULARY)), k=10), 3]
        ids[numbers.randrange(1, 11)] = 5 + label
        inputs = {"input_ids": [*ids, 0, 0, 0, 0], "input_mask": 12 * [1] + 4 * [0], "segment_ids": 16 * [0]}
        return {**inputs, "label_ids": label, "is_real_example": 1}

    (tmp_path / "records").mkdir()
    write_records(tmp_path / "records" / "made_up", [example(**tokens(each % 2)) for each in range(256)])
    arguments = {"tf1": True, "distribution": {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}}
    run, records, served = pipeline("bert", BERT / "module.py", arguments)
    (log,) = Path(run.uri).glob("logs/chief-0.*.log")
    assert copies(log.read_text()) == BERTS_COPIES
    labels = [tf.train.Example.FromString(each).features.feature["label_ids"].int64_list.value[0] for each in records]
    accuracy = np.mean(served["probabilities"].numpy().argmax(1) == labels)
    assert run.custom_properties["eval_eval_accuracy"].double_value == pytest.approx(accuracy)
    # And it leaves for Keras, by the same trainer_fn.
    examples = tmp_path / "artifacts" / "ImportExampleGen" / "examples" / "1"
    files = ("--train-files", examples / "Split-train" / "*", "--eval-files", examples / "Split-eval" / "*")
    given = ("--estimator", f"{BERT / 'module.py'}:trainer_fn", "--tf1", *files, "--output", tmp_path / "kept")
    run_beside("bert", "-m", "tfx_estimator", "convert", f"{run.uri}/Format-Serving", *given)
    proof = json.loads((tmp_path / "kept" / "proof.json").read_text())
    assert (proof["holds"], proof["step"], proof["tensors"]) == (True, 20, {"variable": 124})


def test_electra_is_pretrained(run, text):
    run("electra", "build_pretraining_dataset.py", f"--corpus-dir={text}/corpus", f"--vocab-file={text}/vocab.txt",
        f"--output-dir={text}/pretrain_tfrecords", "--max-seq-length=16", "--num-processes=1")  # fmt: skip
    hparams = {"num_train_steps": 8, "train_batch_size": 4, "max_seq_length": 16, "vocab_size": len(VOCABULARY)}
    hparams |= {"model_hparam_overrides": SMALL, "embedding_size": 32, "vocab_file": f"{text}/vocab.txt"}
    run("electra", "run_pretraining.py", f"--data-dir={text}", "--model-name=m", f"--hparams={json.dumps(hparams)}")
    assert (text / "models" / "m" / "model.ckpt-8.index").exists()


def test_the_official_resnet_is_trained_and_exported(run, tmp_path, numbers):
    def write(name: str, count: int) -> None:
        labels = [numbers.randrange(10) for _ in range(count)]
        records = (bytes([label, *(20 * label + numbers.randrange(40) for _ in range(3072))]) for label in labels)
        (tmp_path / name).write_bytes(b"".join(records))

    for number in range(1, 6):
        write(f"data_batch_{number}.bin", 20)
    write("test_batch.bin", 20)
    folders = (f"--data_dir={tmp_path}", f"--model_dir={tmp_path}/m", f"--export_dir={tmp_path}/e")
    sizes = ("--resnet_size=8", "--batch_size=20", "--max_train_steps=5", "--train_epochs=1", "--num_gpus=0")
    output = run("official", "-m", "official.r1.resnet.cifar10_main", *folders, *sizes)
    assert "Saving dict for global step 5: accuracy = " in output
    assert len([*tmp_path.glob("e/*/saved_model.pb")]) == 1


def test_the_official_mnist_is_trained(run, tmp_path, numbers):
    for part, count in (("train", 400), ("t10k", 100)):
        labels = [numbers.randrange(10) for _ in range(count)]
        pixels = b"".join(bytes(20 * label + numbers.randrange(40) for _ in range(784)) for label in labels)
        header = struct.pack(">IIII", 2051, count, 28, 28), struct.pack(">II", 2049, count)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header[0] + pixels)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(header[1] + bytes(labels))
    sizes = ("--batch_size=20", "--train_epochs=1", "--epochs_between_evals=1", "--num_gpus=0")
    folders = (f"--data_dir={tmp_path}", f"--model_dir={tmp_path}/m", "--data_format=channels_last")
    output = run("official", "-m", "official.mnist.mnist", *folders, *sizes)
    assert "Saving dict for global step 20: accuracy = " in output


def test_the_official_wide_and_deep_model_is_trained_and_exported(run, tmp_path, numbers):
    def row() -> str:
        age, years = numbers.randint(18, 70), numbers.randint(1, 16)
        work, school, married, does, role = (numbers.choice(each.split("|")) for each in CENSUS.split(";"))
        rich = ">50K" if age + 3 * years > 80 else "<=50K"
        return f"{age},{work},1,{school},{years},{married},{does},{role},White,Male,0,0,40,United-States,{rich}\n"

    for name, count in (("adult.data", 400), ("adult.test", 100)):
        (tmp_path / name).write_text("".join(row() for _ in range(count)))
    folders = (f"--data_dir={tmp_path}", f"--model_dir={tmp_path}/m", f"--export_dir={tmp_path}/e")
    epochs = ("--train_epochs=2", "--epochs_between_evals=1", "--nodownload_if_missing")
    output = run("official", "-m", "official.r1.wide_deep.census_main", *folders, *epochs)
    assert float(re.findall(r"Saving dict for global step \d+: accuracy = ([\d.]+)", output)[-1]) > 0.6
    assert len([*tmp_path.glob("e/*/saved_model.pb")]) == 1


@pytest.mark.parametrize("tf1", [False, True], ids=["today", "tf1"])
def test_deepctr_reaches_the_numbers_of_both_stacks(run, tf1):
    output = run("DeepCTR", "run_estimator_tfrecord_classification.py", at="examples", tf1=tf1)
    found = dict(re.findall(r"'(AUC|LogLoss)': (?:np\.float32\()?([\d.]+)", output))
    expected = {"AUC": 0.49851194, "LogLoss": 2.2953067} if tf1 else {"AUC": 0.5059524, "LogLoss": 2.2671075}
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected, rel=1e-5)


# After 10 steps from the same weights.
OF_SLIM = {"loss": 6.8551912, "accuracy": 0.1875}
OF_RANKING = {"loss": -0.70740533, "metric/ndcg": 0.8034277, "metric/mrr": 0.87499994, "logits_mean": -2.3587187}


def check_numbers(output: str, expected: dict[str, float]) -> None:
    found = json.loads(output[output.rindex('{"') :].splitlines()[0])
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.timeout(900)
def test_deepctrs_trainer_fn_is_trained_by_two_workers_in_a_pipeline(pipeline, tmp_path):
    (tmp_path / "records").mkdir()
    for each in Path(FOLDER or "none", "DeepCTR", "examples").glob("*.tfrecords"):
        shutil.copy(each, tmp_path / "records")
    workers = {"strategy": "multi_worker_mirrored", "workers": 2}
    # Its loss is a sum: as the replica check says, each worker then takes a batch of the script's size.
    distribution = {"train": workers, "input_batch": "per_replica"}
    run, _, served = pipeline("DeepCTR", DEEPCTR / "module.py", {"distribution": distribution})
    assert {each.name.partition(".")[0] for each in Path(run.uri).glob("logs/*.log")} >= {"chief-0", "worker-0"}
    mean = np.mean(served["pred"])
    assert run.custom_properties["eval_prediction/mean"].double_value == pytest.approx(float(mean), rel=1e-5)


@pytest.mark.timeout(900)
def test_deepctrs_deepfm_is_trained_on_a_declared_table_blessed_and_pushed(tmp_path):
    write_csv(tmp_path / "day", 20_000)
    shutil.copy(DEEPCTR / "deepfm.py", tmp_path)
    (tmp_path / "ctr.yaml").write_text(
        "name: ctr\n"
        "data: {csv: day/*.csv, label: clicked}\n"
        "transform: {preprocessing_fn: raw}\n"
        "trainer: {model: 'deepfm:model_fn', train_steps: 300, global_batch_size: 64}\n"
    )
    run_beside("DeepCTR", "-m", "tfx_estimator", "run", tmp_path / "ctr.yaml", "--workdir", tmp_path / "runs")
    (summary,) = tmp_path.glob("runs/ctr/logs/*/summary.json")
    results = json.loads(summary.read_text())
    assert results["metrics"]["auc"] >= 0.65
    assert results["blessed"] is True
    assert Path(results["pushed"], "saved_model.pb").is_file()


def test_a_network_of_slim_reaches_the_numbers_of_both_stacks(tmp_path):
    done = run_python("-m", "tfx_estimator.estimator", "--tf1", str(DRAWN), "slim", cwd=tmp_path, timeout=570)
    assert done.returncode == 0, done.stderr[-3000:]
    check_numbers(done.stdout, OF_SLIM)


def test_an_estimator_of_ranking_reaches_the_numbers_of_both_stacks(run):
    data = "tensorflow_ranking/examples/data/train_numerical_elwc.tfrecord"
    check_numbers(run("ranking", DRAWN, "ranking", data, tf1=False), OF_RANKING)


def test_rankings_canned_example_is_trained_evaluated_and_exported(run, tmp_path):
    data = "tensorflow_ranking/examples/data"
    files = (f"--train_input_pattern={data}/train_numerical_elwc.tfrecord", f"--model_dir={tmp_path}/m")
    sizes = ("--num_train_steps=10", "--num_eval_steps=2", "--batch_size=4", "--list_size=10")
    more = (f"--eval_input_pattern={data}/vali_numerical_elwc.tfrecord", *sizes)
    output = run("ranking", "tensorflow_ranking/examples/tf_ranking_canned_dnn.py", *files, *more, tf1=False)
    assert "Saving dict for global step 10: " in output
    assert len([*tmp_path.glob("m/export/*/*/saved_model.pb")]) == 2


def test_a_deep_cross_network_is_trained_evaluated_used_and_exported(run, tmp_path, numbers):
    def line() -> str:
        ids = [5 * field + numbers.randrange(5) for field in range(6)]
        return f"{int(ids[0] % 5 > 1)} " + " ".join(f"{each}:{numbers.random():.3f}" for each in ids) + "\n"

    for part, count in (("tr", 256), ("va", 64), ("te", 32)):
        (tmp_path / f"{part}.libsvm").write_text("".join(line() for _ in range(count)))
    sizes = ("--feature_size=30", "--field_size=6", "--embedding_size=4", "--deep_layers=8,4", "--dropout=0.9,0.9")
    folders = (f"--data_dir={tmp_path}", f"--model_dir={tmp_path}/m", f"--servable_model_dir={tmp_path}/e")
    for task in ("train", "eval", "infer", "export"):
        given = (*sizes, *folders, "--dt_dir=1", f"--task_type={task}", "--num_epochs=2")
        run("tf_repos", "deep_ctr/Model_pipeline/DCN.py", *given)
    assert len((tmp_path / "pred.txt").read_text().splitlines()) == 32
    assert len([*tmp_path.glob("e/*/saved_model.pb")]) == 1


KEEP = """
import json, runpy, sys, types
import numpy as np
import tensorflow as tf
import tfx_estimator

path, params, made, output = sys.argv[1:]
code, draw = types.SimpleNamespace(**runpy.run_path(path)), np.random.RandomState(0)


def batches(features, labels):
    return lambda: tf.data.Dataset.from_tensor_slices((features, labels)).batch(8, drop_remainder=True).repeat()


model_fn, input_fn = eval(made)
estimator = tf.estimator.Estimator(model_fn, output + "/model", params=eval(params))
estimator.train(input_fn, steps=4)
proof = tfx_estimator.convert(estimator, input_fn, input_fn, output + "/kept", to="kept")
print(json.dumps([proof.holds, proof.next_steps]))
"""
TEMPLATE = "{'use_tpu': False, 'train_batch_size': 16, 'sequence_length': 5, 'gr_weight': 1.0, 'lambda': 1.0}"
COLUMNS = "[tf.feature_column.numeric_column('a')]"
NETWORK = "num_channels=8, bn_momentum=.9, use_batch_norm=True, embedding_size=16, image_size=28, squared=False"
# By checkout and file: expressions of the params, and of the model_fn and its input_fn.
KEPT = {
    **{
        f"cloudml-samples/tpu/templates/tpu_{name}/trainer.py": (TEMPLATE, "code.model_fn, code.train_input_fn")
        for name in ("cnn_estimator", "estimator", "film_estimator", "grl_estimator", "lstm_estimator")
    },
    "training-data-analyst/courses/machine_learning/deepdive/09_sequence/sinemodel/model.py": (
        "code.init({'sequence_length': 20}) or {'model': 'rnnN', 'learning_rate': .01}",
        "code.sequence_regressor, batches({'height': draw.rand(96, 19).astype('f')}, draw.rand(96).astype('f'))",
    ),
    "deeplearning/DCN/deep_cross_network.py": (
        f"{{'feature_columns': {COLUMNS}, 'hidden_units': [8], 'num_cross_layers': 2, 'learning_rate': .1}}",
        "code.dcn_model_fn, batches({'a': draw.rand(96)}, draw.randint(0, 2, 96))",
    ),
    "tensorflow-triplet-loss/model/model_fn.py": (
        f"dict({NETWORK}, triplet_strategy='batch_all', margin=.5, learning_rate=.001)",
        "lambda features, labels, mode, params: code.model_fn(features, labels, mode, types.SimpleNamespace(**params)),"
        "batches(draw.rand(96, 784).astype('f'), draw.randint(0, 4, 96))",
    ),
}


@pytest.mark.parametrize("place", KEPT)
def test_a_training_is_kept(run, tmp_path, place):
    (tmp_path / "keep.py").write_text(KEEP)
    checkout, _, path = place.partition("/")
    output = run(checkout, tmp_path / "keep.py", path, *KEPT[place], tmp_path)
    assert json.loads(output[output.rindex("[true") :].splitlines()[0]) == [True, {"loss": 0.0, "variable": 0.0}]
