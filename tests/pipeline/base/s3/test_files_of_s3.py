"""TensorFlow reads and writes s3:// like a folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf

from tests.root import ROOT
from tests.store.s3 import ADDRESS, BUCKET, S3, empty, fresh, serving
from tests.waiting import wait_until
from tfx_estimator.components.trainer.checkpoint import check_answers
from tfx_estimator.components.trainer.estimator.checkpoints import last_step
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.s3 import asking, store

pytest.importorskip("moto")
gfile = tf.io.gfile


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def emptied(server) -> Iterator[None]:
    yield
    server.share, server.before = 0.0, lambda method, path: None
    empty()


def write(name: str, text: str = "text") -> str:
    with gfile.GFile(f"{ADDRESS}/{name}", "w") as file:
        file.write(text)
    return f"{ADDRESS}/{name}"


def test_a_file_is_written_appended_described_copied_and_removed():
    path = write("a/b.txt", "one\n")
    with gfile.GFile(path, "a") as file:
        file.write("two\n")
        assert file.tell() == 8
    assert gfile.GFile(path).read() == "one\ntwo\n"
    found = gfile.stat(path)
    assert (found.length, found.is_directory) == (8, False)
    assert abs(found.mtime_nsec / 1e9 - time.time()) < 60
    gfile.copy(path, f"{ADDRESS}/c.txt")
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.copy(path, f"{ADDRESS}/c.txt")
    gfile.remove(path)
    assert not gfile.exists(path)
    assert gfile.GFile(f"{ADDRESS}/c.txt").read() == "one\ntwo\n"
    for ask in (gfile.remove, gfile.stat, gfile.rmtree, gfile.listdir, lambda place: gfile.GFile(place).read()):
        with pytest.raises(tf.errors.NotFoundError):
            ask(path)


def test_folders_are_made_listed_walked_moved_and_removed():
    for name in ("run/a/1.txt", "run/a/2.txt", "run/b.txt", "run-2/c.txt"):
        write(name, name)
    gfile.makedirs(f"{ADDRESS}/run/empty/inner")
    assert gfile.listdir(f"{ADDRESS}/run") == ["a", "b.txt", "empty"]
    assert gfile.listdir(f"{ADDRESS}/run/empty/inner") == []
    assert [*gfile.walk(f"{ADDRESS}/run")] == [
        (f"{ADDRESS}/run", ["a", "empty"], ["b.txt"]),
        (f"{ADDRESS}/run/a", [], ["1.txt", "2.txt"]),
        (f"{ADDRESS}/run/empty", ["inner"], []),
        (f"{ADDRESS}/run/empty/inner", [], []),
    ]
    assert [gfile.isdir(f"{ADDRESS}/{name}") for name in ("", "run", "run/", "run/a", "ru", "run/b.txt")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip
    gfile.rename(f"{ADDRESS}/run", f"{ADDRESS}/moved")
    assert not gfile.exists(f"{ADDRESS}/run")
    assert gfile.GFile(f"{ADDRESS}/moved/a/2.txt").read() == "run/a/2.txt"
    assert gfile.isdir(f"{ADDRESS}/moved/empty/inner")
    gfile.rmtree(f"{ADDRESS}/moved")
    assert gfile.glob(f"{ADDRESS}/*") == [f"{ADDRESS}/run-2"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("m/model.ckpt-*.index", ["m/model.ckpt-1.index", "m/model.ckpt-22.index"]),
        ("m/model.ckpt-?.index", ["m/model.ckpt-1.index"]),
        ("*/*-[12]*.index", ["m/model.ckpt-1.index", "m/model.ckpt-22.index"]),
        ("*/x/*", ["m/x/y"]),
        ("*/x", ["m/x"]),
        ("m/*", ["m/model.ckpt-1.index", "m/model.ckpt-22.index", "m/x"]),
        ("m/x/y", ["m/x/y"]),
        ("n/*", []),
    ],
)
def test_a_pattern_matches_as_on_a_disk(pattern, found, tmp_path):
    for name in ("m/model.ckpt-1.index", "m/model.ckpt-22.index", "m/x/y"):
        write(name)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert gfile.glob(f"{ADDRESS}/{pattern}") == [f"{ADDRESS}/{name}" for name in found]
    assert sorted(gfile.glob(f"{tmp_path}/{pattern}")) == [f"{tmp_path}/{name}" for name in found]


def test_more_objects_than_a_page_are_all_found_and_removed(server, monkeypatch):
    monkeypatch.setattr(server, "page", 50)
    monkeypatch.setattr(store, "_REMOVED_AT_ONCE", 50)
    place = store.Place.of(f"{ADDRESS}/many")
    with ThreadPoolExecutor(8) as pool:
        [
            *pool.map(
                lambda n: asking.client().put_object(Bucket=BUCKET, Key=f"{place.prefix}{n:04}", Body=b""), range(120)
            )
        ]
    assert gfile.listdir(f"{ADDRESS}/many") == [f"{number:04}" for number in range(120)]
    gfile.rmtree(f"{ADDRESS}/many")
    assert not gfile.exists(f"{ADDRESS}/many")


def test_a_large_file_is_read_in_order_and_anywhere(server):
    content = os.urandom(20 * 2**20)  # uploaded in parts, read in blocks
    with gfile.GFile(f"{ADDRESS}/large", "wb") as file:
        file.write(content)
    before = server.requests
    with gfile.GFile(f"{ADDRESS}/large", "rb") as file:
        parts = [*iter(lambda: file.read(100_000), b"")]
        assert b"".join(parts) == content
        assert server.requests - before < 15
        for start in (19_000_000, 5, 2**18 - 3, len(content) - 1):
            file.seek(start)
            assert file.read(300_000) == content[start : start + 300_000]


def test_a_file_that_is_replaced_while_it_is_read_is_no_mixture():
    path = write("replaced", "old" * 10**6)
    with gfile.GFile(path) as file:
        assert file.read(3) == "old"
        write("replaced", "new" * 10**6)
        with pytest.raises(tf.errors.FailedPreconditionError):
            file.read()


def test_records_checkpoints_models_and_events_are_as_on_a_disk():
    with tf.io.TFRecordWriter(f"{ADDRESS}/records") as writer:
        for number in range(1000):
            writer.write(b"%d" % number)
    read = [int(record) for record in tf.data.TFRecordDataset(f"{ADDRESS}/records").as_numpy_iterator()]
    assert read == [*range(1000)]

    variable = tf.Variable(tf.random.normal([1000, 100], seed=1))
    tf.train.Checkpoint(v=variable).save(f"{ADDRESS}/training/ckpt")
    other = tf.Variable(tf.zeros([1000, 100]))
    tf.train.Checkpoint(v=other).restore(tf.train.latest_checkpoint(f"{ADDRESS}/training"))
    assert (other.numpy() == variable.numpy()).all()

    module = tf.Module()
    module.call = tf.function(lambda x: x + 2.0, input_signature=[tf.TensorSpec([], tf.float32)])
    tf.saved_model.save(module, f"{ADDRESS}/model")
    assert tf.saved_model.load(f"{ADDRESS}/model").call(tf.constant(1.0)).numpy() == 3.0

    with tf.summary.create_file_writer(f"{ADDRESS}/logs").as_default():
        tf.summary.scalar("loss", 0.5, step=7)
    (events,) = gfile.glob(f"{ADDRESS}/logs/*")
    assert [event.step for event in tf.compat.v1.train.summary_iterator(events)] == [0, 7]


def test_requests_that_the_store_refuses_for_its_load_are_repeated(server):
    server.share = 0.2
    for number in range(10):
        write(f"f/{number}", str(number))
    assert [gfile.GFile(path).read() for path in gfile.glob(f"{ADDRESS}/f/*")] == [*map(str, range(10))]


def test_a_store_that_is_away_is_waited_for():
    with serving() as server, ThreadPoolExecutor() as pool:
        path = write("kept")
        with server.away():
            read = pool.submit(lambda: gfile.GFile(path).read())
            written = pool.submit(write, "late", "late")
            time.sleep(2)
            assert not read.done()
            assert not written.done()
        assert read.result(60) == "text"
        written.result(60)
        assert gfile.GFile(f"{ADDRESS}/late").read() == "late"


def test_whoever_took_an_outage_for_an_empty_store_cannot_write():
    training = f"{ADDRESS}/training"
    with serving() as server:
        tf.train.Checkpoint(v=tf.Variable(1.0)).save(f"{training}/ckpt")
        with fresh(patience=1):
            with server.away():
                assert tf.train.latest_checkpoint(training) is None  # TensorFlow's answer
            with pytest.raises(tf.errors.UnavailableError, match="did not answer for 1 s"):
                tf.train.Checkpoint(v=tf.Variable(0.0)).save(f"{training}/ckpt")
        latest = tf.train.latest_checkpoint(training)
        assert tf.train.load_variable(latest, "v/.ATTRIBUTES/VARIABLE_VALUE") == 1.0


def test_no_checkpoint_is_believed_only_of_a_store_that_answers():
    with serving() as server:
        assert last_step(f"{ADDRESS}/training") is None
        with fresh(patience=1), server.away(), pytest.raises(TrainingError, match="did not answer for 1 s") as caught:
            check_answers(f"{ADDRESS}/training")
        assert caught.value.retryable


def test_a_wrong_bucket_and_a_lack_of_credentials_are_said(monkeypatch):
    assert not gfile.exists("s3://no-such-bucket/a")
    with pytest.raises(tf.errors.UnknownError, match="Invalid bucket name"):
        gfile.exists("s3://")
    with (
        pytest.raises(tf.errors.NotFoundError, match="NoSuchBucket"),
        gfile.GFile("s3://no-such-bucket/a", "w") as file,
    ):
        file.write("text")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with fresh(), pytest.raises(tf.errors.UnauthenticatedError, match="Unable to locate credentials"):
        gfile.exists(f"{ADDRESS}/a")


_ENDS = """
import sys
import threading
import tfx_estimator
import tensorflow as tf
writer = tf.summary.create_file_writer("{address}/events")
with writer.as_default():
    tf.summary.scalar("loss", 0.5, step=1)
writer.flush()
left = tf.io.gfile.GFile("{address}/left", "w")
left.write("text")
rows = iter(tf.data.TFRecordDataset("{address}/records").repeat().prefetch(2))
next(rows)
sys.exit(3)
"""


def test_a_process_that_ends_amid_reads_and_writes_keeps_its_exit_code_and_its_files():
    with tf.io.TFRecordWriter(f"{ADDRESS}/records") as writer:
        writer.write(b"row" * 1000)
    command, path = [sys.executable, "-c", _ENDS.format(address=ADDRESS)], {**os.environ, "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    assert "Exception ignored" not in done.stderr
    assert gfile.GFile(f"{ADDRESS}/left").read() == "text"
    assert len(gfile.glob(f"{ADDRESS}/events/*")) == 1


def test_a_forked_process_has_its_own_client():
    path = write("shared")
    pid = os.fork()
    if not pid:
        os._exit(0 if gfile.GFile(path).read() == "text" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_events_that_are_written_are_published_while_the_file_is_open(monkeypatch):
    from tfx_estimator.pipeline.base.s3 import files

    monkeypatch.setattr(files, "_FLUSH_SECONDS", 0.0)
    with gfile.GFile(f"{ADDRESS}/open", "w") as file:
        file.write("first")
        file.flush()
        wait_until(lambda: gfile.exists(f"{ADDRESS}/open"), "the file", 10)
        assert gfile.GFile(f"{ADDRESS}/open").read() == "first"


class Stopped(BaseException):
    """As a handler of SIGTERM raises it."""


@pytest.mark.parametrize("act", ["exists", "isdir", "close"])
def test_a_signal_amid_a_request_is_no_answer_and_is_not_lost(server, act):
    path = write("kept")

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, stop)
    file = gfile.GFile(f"{ADDRESS}/late", "w")
    file.write("late")
    asked = threading.Event()

    def slow(method: str, path: str) -> None:
        asked.set()
        time.sleep(1)

    server.before = slow
    threading.Thread(
        target=lambda: asked.wait(20) and signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    ).start()
    try:
        with pytest.raises(Stopped):  # noqa: PT012
            with contextlib.suppress(tf.errors.CancelledError):  # TensorFlow's isdir takes any error for False
                {"exists": lambda: gfile.exists(path), "isdir": lambda: gfile.isdir(path), "close": file.close}[act]()
            time.sleep(5)
    finally:
        signal.signal(signal.SIGUSR1, before)
        server.before = lambda method, path: None
    del file
    wait_until(lambda: gfile.exists(f"{ADDRESS}/late"), "the file", 20)
    assert gfile.GFile(f"{ADDRESS}/late").read() == "late"


def test_a_folder_is_not_moved_into_itself_or_onto_a_full_one():
    path = write("a/1", "one")
    write("b/2", "two")
    for target in ("a/inner", "b"):
        with pytest.raises(tf.errors.FailedPreconditionError):
            gfile.rename(f"{ADDRESS}/a", f"{ADDRESS}/{target}", overwrite=True)
    gfile.rename(path, path, overwrite=True)
    assert [gfile.GFile(f"{ADDRESS}/{name}").read() for name in ("a/1", "b/2")] == ["one", "two"]


def test_readers_of_a_small_file_that_is_written_again_and_again_get_one_of_its_versions():
    path = write("checkpoint", "0")
    with ThreadPoolExecutor(4) as pool:
        writing = pool.submit(lambda: [write("checkpoint", str(number)) for number in range(40)])
        read = [*pool.map(lambda _: [int(gfile.GFile(path).read()) for _ in range(20)], range(3))]
        writing.result()
    assert all(each == sorted(each) for each in read)


def test_a_forked_process_leaves_its_parents_open_files_alone():
    file = gfile.GFile(f"{ADDRESS}/of-parent", "w")
    file.write("first ")
    child = "import os, sys\nif not os.fork():\n    sys.exit(0)\nos.wait()\n"
    program = f"import tfx_estimator\nimport tensorflow as tf\nfile = tf.io.gfile.GFile('{ADDRESS}/forked', 'w')\n"
    program += f"file.write('first ')\nfile.flush()\n{child}file.write('second')\nfile.close()\n"
    path = {**os.environ, "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert gfile.GFile(f"{ADDRESS}/forked").read() == "first second"
    file.close()
