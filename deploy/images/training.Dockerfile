# A training: loss and accuracy by epoch, and a model that is kept after each.
#   docker build --file deploy/images/training.Dockerfile --tag fleetlab-training:0.2.0 deploy/images
ARG BASE=fleetlab-base:0.2.0

FROM ${BASE}
LABEL org.opencontainers.image.title="fleetlab-training" org.opencontainers.image.version="0.2.0"
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=5s --start-period=120s --retries=3 CMD ["alive"]
ENTRYPOINT ["fleetlab", "bench", "workload"]
CMD ["resnet-train", "--epochs", "5", "--out", "/results/trained"]
