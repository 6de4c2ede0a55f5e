"""The user's functions are found as TFX finds them, in any number of concurrent tasks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, channel_utils

from tests.artifacts import outputs
from tests.folders import write_files
from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.task.user_code import call_network, function_of, make_fn_args

pytestmark = [pytest.mark.unit, pytest.mark.timeout(180)]

MODULE = """
import beside

def run_fn(fn_args):
    import profile
    return beside.NAME + profile.NAME

def trainer_fn(fn_args, schema):
    from . import beside
"""
# A pip that fails when it is called, as it would without a network.
PIP = "raise SystemExit('pip was asked')\n"
TASK = """
import os, sys
from tests.waiting import wait_until
from tfx_estimator.components.trainer.task.user_code import function_of
open(sys.argv[2] + str(os.getpid()), "w").close()
wait_until(lambda: len(os.listdir(sys.argv[2])) == 3, "all three tasks")
function = function_of({"module_path": sys.argv[1]}, "run_fn")
folder = os.path.dirname(sys.modules["beside"].__file__)
print(function(None), folder, sorted(name for name in os.listdir(folder) if name.endswith(".py")))
"""


@pytest.fixture(scope="module")
def module_path(tmp_path_factory) -> str:
    """A module with two others next to it, packed by TFX."""
    from tfx.components.util import udf_utils

    folder = tmp_path_factory.mktemp("user")
    write_files(folder, {"mine.py": MODULE, "beside.py": "NAME = 'be'", "profile.py": "NAME = 'late'"})
    return udf_utils.package_user_module_file("Trainer", str(folder / "mine.py"), str(folder))[1]


def test_concurrent_tasks_find_the_module_without_pip(codes, module_path, tmp_path: Path):
    write_files(tmp_path, {"hidden/pip/__init__.py": PIP})
    (tmp_path / "ready").mkdir()
    # pip would be used as a module in this process, or as a command in another.
    hidden = str(tmp_path / "hidden")
    given = ([module_path, f"{tmp_path}/ready/"], [hidden], {"PYTHONPATH": hidden})
    tasks = [codes.start(TASK, *given) for _ in range(3)]
    assert [codes.wait(task) for task in tasks] == [0, 0, 0]
    lines = [codes.output_of(task).splitlines()[-1].split(maxsplit=2) for task in tasks]
    assert [(each[0], each[2].strip()) for each in lines] == [("belate", "['beside.py', 'mine.py', 'profile.py']")] * 3
    folders = {each[1] for each in lines}
    # Each task has its own copy, which is removed at its end.
    assert len(folders) == 3
    assert not [folder for folder in folders if os.path.exists(folder)]


def test_the_users_modules_hide_no_installed_one_and_relative_imports_are_refused_as_by_tfx(codes, module_path):
    code = (
        "import sys\n"
        "from tfx_estimator.components.trainer.task.user_code import function_of\n"
        "from tfx_estimator.pipeline.base.errors import UserCodeError\n"
        f"properties = {{'module_path': {module_path!r}}}\n"
        "before = list(sys.path)\n"
        "trainer_fn = function_of(properties, 'trainer_fn')\n"
        "assert sys.path[:-1] == before\n"
        "try:\n"
        "    trainer_fn(None, None)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "try:\n"
        "    function_of(properties, 'tune_fn')\n"
        "except UserCodeError as error:\n"
        "    print(error.todo)\n"
    )
    assert codes.call(code) == 0, codes.output
    assert codes.output.splitlines()[-2:] == [
        "attempted relative import with no known parent package",
        "define tune_fn",
    ]


def test_a_module_that_fails_at_import_is_reported_with_its_own_error(tmp_path: Path):
    (tmp_path / "mine.py").write_text("import os\nos.nothing\ndef run_fn(fn_args): pass\n")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        function_of({"module_file": str(tmp_path / "mine.py")}, "run_fn")


@pytest.mark.parametrize(
    ("function", "params", "given"),
    [
        (lambda num_classes: num_classes, {}, 10),
        (lambda n, units: (n, units), {"units": 3}, (10, 3)),
        (lambda *sizes: sizes, {}, (10,)),
        (lambda *, num_classes: num_classes, {}, 10),
        (lambda classes=2: classes, {}, 10),
        # A model with its own number of classes.
        (lambda: "made", {}, "made"),
        (lambda rate=0.1: rate, {}, 0.1),
        (lambda rate: rate, {"rate": 0.2}, 0.2),
        (lambda **options: options, {"units": 3}, {"units": 3}),
    ],
)
def test_a_network_function_gets_the_number_of_classes_if_it_accepts_it(function, params, given):
    assert call_network(function, 10, params) == given


FLAGS = """
import sys
from absl import flags
from tfx_estimator.components.trainer.task.user_code import find_function
from tfx_estimator.pipeline.base.errors import UserCodeError
sys.argv.append("--learning_rate=7")
try:
    print(find_function("flagged:model_fn")(None, None, None), flags.FLAGS.is_parsed())
except UserCodeError as error:
    print(error)
"""
FLAGGED = """
from absl import flags
flags.DEFINE_float("learning_rate", 0.25, "")

def model_fn(features, labels, mode):
    return flags.FLAGS.learning_rate
"""


@pytest.mark.parametrize("required", [False, True])
def test_absl_flags_have_their_defined_defaults(codes, tmp_path: Path, required):
    more = '\nflags.DEFINE_string("data_dir", None, "")\nflags.mark_flag_as_required("data_dir")\n' if required else ""
    (tmp_path / "flagged.py").write_text(FLAGGED + more)
    assert codes.call(FLAGS, [], [str(tmp_path)]) == 0, codes.output
    if not required:
        assert codes.output.splitlines()[-1] == "0.25 True"
    else:
        assert "flag --data_dir=None: Flag --data_dir must have a value other than None" in codes.output
        assert "trainer.params" in codes.output


@pytest.mark.parametrize("own", [{}, {"layers": [3, 2]}])
def test_custom_config_only_holds_the_users_entries(tmp_path, own):
    given = outputs(tmp_path, examples="Examples", schema="Schema")
    given["examples"][0].split_names = '["train", "eval"]'
    write_files(tmp_path, {"schema/schema.pbtxt": ""})
    properties = Trainer(
        examples=channel_utils.as_channel(given["examples"]),
        run_fn="mine.run_fn",
        train_args=trainer_pb2.TrainArgs(num_steps=7),
        eval_args=trainer_pb2.EvalArgs(),
        custom_config=own,
        distribution={"max_restarts": 1},
    ).exec_properties
    inputs, made = map(artifact_utils.jsonify_artifact_dict, (given, outputs(tmp_path)))
    fn_args = make_fn_args(Job(inputs, made, properties, str(tmp_path / "training")))
    # Only the user's entries: a function may rely on that.
    assert (fn_args.custom_config or {}) == own
    assert fn_args.train_steps == 7
    # The part that outlives one execution.
    assert fn_args.model_run_dir == str(tmp_path / "training")
    assert fn_args.serving_model_dir == str(tmp_path / "training" / "Format-Serving")
    assert fn_args.eval_model_dir == str(tmp_path / "training" / "Format-TFMA")
