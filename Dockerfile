# The image in which every task runs, see docs/container.md:
#   docker build --platform linux/amd64 --build-arg BASE=python:3.13-slim-trixie@sha256:… --tag tfx-estimator .
# BASE is a Debian whose `python3` is one of STACK's, pinned by its digest: for tfx1.15 python:3.10-slim-bookworm.
ARG BASE

FROM ${BASE} AS packages
ARG STACK=tfx1.21
# STACK-image.lock has TensorFlow for CPUs; STACK.lock, with kernels for GPUs and all that notebooks need, is 700 MB more.
ARG LOCK=$STACK-image.lock
# pyfarmhash, of TFX's, has no wheel.
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends g++ > /dev/null
COPY requirements/uv.txt /requirements/
RUN python3 -m venv /uv && /uv/bin/pip install --quiet --no-cache-dir --require-hashes -r /requirements/uv.txt
COPY requirements/$LOCK /requirements/
RUN python3 -m venv --without-pip /opt/tfx-estimator \
 && VIRTUAL_ENV=/opt/tfx-estimator /uv/bin/uv pip install --quiet --no-cache --no-deps --require-hashes \
      --compile-bytecode -r /requirements/$LOCK \
 && cd /opt/tfx-estimator/lib/python3.*/site-packages \
 # For operations in C++ of one's own, and for debuggers of these.
 && rm -rf tensorflow/include \
 && strip --strip-unneeded tensorflow/libtensorflow_*.so.2 tfx_bsl/cc/*.so tensorflow_data_validation/pywrap/*.so

FROM packages AS wheel
COPY . /source
RUN cd /source && /opt/tfx-estimator/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels .

FROM ${BASE}
# One layer for what changes with a release of TensorFlow, TFX or Beam; a small one for what changes every day.
COPY --from=packages /opt/tfx-estimator /opt/tfx-estimator
COPY --from=wheel /wheels /opt/wheels
RUN /opt/tfx-estimator/bin/pip install --quiet --no-cache-dir --no-deps --no-index /opt/wheels/*.whl \
 && useradd --uid 10001 --create-home --home-dir /work tfx-estimator \
 # For other users of Kubernetes: one that the image does not know is of group 0.
 && chgrp 0 /work && chmod 0775 /work
# Nothing but /work and /tmp is written to: the root may be read-only.
ENV PATH=/opt/tfx-estimator/bin:$PATH HOME=/work USER=tfx-estimator PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib
USER 10001
WORKDIR /work
ENTRYPOINT ["tfx-estimator"]
CMD ["--help"]
