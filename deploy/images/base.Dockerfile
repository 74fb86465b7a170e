# The lab with torch and the bench: suites, stress, the monitor. The other images are made of it.
#   docker build --file deploy/images/base.Dockerfile --tag fleetlab-base:0.2.0 .
ARG PYTHON=python:3.12.11-slim-bookworm@sha256:519591d6871b7bc437060736b9f7456b8731f1499a57e22e6c285135ae657bf7

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/fleetlab
ENV PATH=/opt/fleetlab/bin:$PATH
# What changes rarely comes first: gigabytes of torch are not fetched again for a line of ours.
COPY deploy/images/base.lock /tmp/base.lock
RUN pip install --require-hashes --only-binary :all: --requirement /tmp/base.lock
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
# The lock has the setuptools that builds it; nothing else is fetched.
RUN pip install --no-deps --no-build-isolation /src

FROM ${PYTHON}
LABEL org.opencontainers.image.title="fleetlab-base" org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 lab && useradd --uid 10001 --gid lab --create-home lab \
    && install --directory --owner=lab --group=lab /results
COPY --from=build /opt/fleetlab /opt/fleetlab
COPY --chmod=555 deploy/images/alive.py /usr/local/bin/alive
# nvidia-smi and MPS' programs come from the driver of the host, where these words ask for them.
ENV PATH=/opt/fleetlab/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility NUMBA_CACHE_DIR=/tmp/numba XDG_CACHE_HOME=/tmp/cache
WORKDIR /results
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=5s --start-period=120s --retries=3 CMD ["alive"]
ENTRYPOINT ["fleetlab"]
CMD ["--help"]
