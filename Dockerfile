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
 # For operations in C++ of one's own, and for debuggers of these; and what packages are tested with.
 && rm -rf tensorflow/include && find . -type d \( -name tests -o -name testdata \) -prune -exec rm -rf {} + \
 # TFMA's widgets are imported with TFMA, and want all of Jupyter; only types of what its functions return name them.
 && find tensorflow_model_analysis -path '*/notebook/visualization.py' -exec truncate --size 0 {} + \
 && find tensorflow_model_analysis -name widget_view.py -exec sed -i '1i from __future__ import annotations' {} + \
 && strip --strip-unneeded tensorflow/libtensorflow_*.so.2 tfx_bsl/cc/*.so tensorflow_data_validation/pywrap/*.so

FROM packages AS wheel
COPY . /source
RUN cd /source && /opt/tfx-estimator/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/tfx-estimator/bin/pip install --quiet --no-cache-dir --no-deps --no-index --prefix /installed /wheels/*.whl

FROM ${BASE}
# One layer for what changes with a release of TensorFlow, TFX or Beam; a small one for what changes every day.
COPY --from=packages /opt/tfx-estimator /opt/tfx-estimator
COPY --from=wheel /installed /opt/tfx-estimator
RUN useradd --uid 10001 --create-home --home-dir /work tfx-estimator \
 # For other users of Kubernetes: one that the image does not know is of group 0.
 && chgrp 0 /work && chmod 0775 /work \
 # Nobody becomes another user.
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
# Nothing but /work and /tmp is written to: the root may be read-only.
ENV PATH=/opt/tfx-estimator/bin:$PATH HOME=/work USER=tfx-estimator PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib
USER 10001
WORKDIR /work
ENTRYPOINT ["tfx-estimator"]
CMD ["--help"]
ARG BASE
ARG REVISION=
LABEL org.opencontainers.image.title=tfx-estimator \
      org.opencontainers.image.description="A declared TFX pipeline that trains an Estimator or a Keras model" \
      org.opencontainers.image.version=0.2.0 \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.base.name=$BASE
