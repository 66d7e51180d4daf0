# Forwards HTTP requests to Services. Ports below 1024 need the capability NET_BIND_SERVICE, which engines grant to containers
# by default, and a kernel that lets other users than root use them: --sysctl net.ipv4.ip_unprivileged_port_start=80.
FROM scratch
LABEL org.opencontainers.image.title="tidegate-gateway" \
      org.opencontainers.image.description="HTTP gateway of Tidegate" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY root/ /
USER 65532:65532
ENTRYPOINT ["/usr/bin/tidegate-gateway"]
