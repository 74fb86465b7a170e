# A model behind HTTP: /predict, /health, /ready and /metrics on port 8000.
#   docker build --file deploy/images/inference.Dockerfile --tag fleetlab-inference:0.2.0 deploy/images
ARG BASE=fleetlab-base:0.2.0

FROM ${BASE}
LABEL org.opencontainers.image.title="fleetlab-inference" org.opencontainers.image.version="0.2.0"
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 CMD ["alive", "http://127.0.0.1:8000/ready"]
ENTRYPOINT ["fleetlab", "bench", "serve"]
CMD ["resnet-infer", "--host", "0.0.0.0", "--port", "8000"]
