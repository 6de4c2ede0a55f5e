"""The imports of a training task, and the lazy modules for the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

HEAVY = ["apache_beam", "kubernetes", "google.cloud.bigquery", "tfx.components.example_gen.component"]


@pytest.fixture
def run_lines(codes) -> Callable[[str], list[str]]:
    """Runs code in a task without lazy modules loaded; returns its output."""

    def run(code: str) -> list[str]:
        assert codes.call(f"import sys\n{code}") == 0, codes.output
        return codes.output.splitlines()

    return run


@pytest.mark.parametrize("module", ["estimator.path", "executor"])
def test_a_task_or_a_replica_imports_only_what_training_needs(run_lines, module):
    code = f"import tfx_estimator.components.trainer.{module}\nprint([name for name in {HEAVY} if name in sys.modules])"
    assert run_lines(code)[-1] == "[]"


def test_modules_that_a_users_module_imports_are_available(run_lines):
    code = (
        "from tensorflow_data_validation import __version__\n"
        "import tensorflow_model_analysis as tfma\n"
        "assert __version__ and tfma.__version__\n"
        "from tfx import v1 as tfx\n"
        "from tfx.components.trainer.fn_args_utils import FnArgs\n"
        "import tensorflow_model_analysis as tfma\n"
        "import tensorflow_data_validation as tfdv\n"
        "assert tfx.components.FnArgs is FnArgs\n"
        "assert tfx.components.CsvExampleGen.__name__ == 'CsvExampleGen'\n"
        "from tfx.components import *\n"
        "assert Transform is tfx.components.Transform\n"
        "assert tfma.EvalConfig is sys.modules['tensorflow_model_analysis.proto.config_pb2'].EvalConfig\n"
        "print(tfma.run_model_analysis.__name__, tfdv.infer_schema.__name__, callable(tfma.export.EvalInputReceiver))\n"
    )
    assert run_lines(code)[-1] == "run_model_analysis infer_schema True"


def test_a_data_accessor_reads_examples(run_lines, tmp_path):
    code = (
        "import tensorflow as tf\n"
        "from tfx.components.util import tfxio_utils\n"
        "from tfx.types import standard_artifacts\n"
        "from tensorflow_metadata.proto.v0 import schema_pb2\n"
        "from google.protobuf import text_format\n"
        f"path = {str(tmp_path / 'examples.gz')!r}\n"
        "feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[7]))\n"
        "example = tf.train.Example(features=tf.train.Features(feature={'x': feature})).SerializeToString()\n"
        "with tf.io.TFRecordWriter(path, 'GZIP') as writer: [writer.write(example) for _ in range(5)]\n"
        "schema = text_format.Parse('feature {name: \"x\" type: INT shape {dim {size: 1}} presence {min_fraction: 1}}',"
        " schema_pb2.Schema())\n"
        "artifacts = [standard_artifacts.Examples()]\n"
        "make = tfxio_utils.get_tf_dataset_factory_from_artifact(artifacts, ['test'])\n"
        "assert tfxio_utils.get_data_view_decode_fn_from_artifact(artifacts, ['test']) is None\n"
        "assert 'apache_beam' not in sys.modules\n"
        "from tfx_bsl.public import tfxio\n"
        "options = tfxio.TensorFlowDatasetOptions(batch_size=5, num_epochs=1, label_key=None)\n"
        "for _ in range(2):\n"
        "    print([batch['x'].numpy().ravel().tolist() for batch in make([path], options, schema)])\n"
    )
    # Among warnings.
    assert [line for line in run_lines(code) if line.startswith("[")] == ["[[7, 7, 7, 7, 7]]"] * 2
