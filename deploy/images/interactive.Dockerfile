# JupyterLab beside the lab, for work in bursts; JUPYTER_TOKEN says who may come in.
#   docker build --file deploy/images/interactive.Dockerfile --tag fleetlab-interactive:0.2.0 deploy/images
ARG BASE=fleetlab-base:0.2.0

FROM ${BASE}
LABEL org.opencontainers.image.title="fleetlab-interactive" org.opencontainers.image.version="0.2.0"
USER 0:0
COPY interactive.lock /tmp/interactive.lock
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement /tmp/interactive.lock \
    && rm /tmp/interactive.lock
USER 10001:10001
WORKDIR /home/lab
EXPOSE 8888
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["alive", "http://127.0.0.1:8888/api"]
ENTRYPOINT ["jupyter", "lab"]
CMD ["--ip=0.0.0.0", "--port=8888", "--no-browser"]
