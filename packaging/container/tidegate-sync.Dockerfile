# Keeps Tidegate equal to a source. The source `docker` needs the engine's socket: --user 0, or the group of the socket.
FROM scratch
LABEL org.opencontainers.image.title="tidegate-sync" \
      org.opencontainers.image.description="Sources of Tidegate: files, Docker, DNS, Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY root/ /
USER 65532:65532
ENTRYPOINT ["/usr/bin/tidegate-sync"]
