# Answers DNS questions for the names of Services. Port 53 needs the capability NET_BIND_SERVICE, which engines grant to
# containers by default, and a kernel that lets other users than root use it: --sysctl net.ipv4.ip_unprivileged_port_start=53.
FROM scratch
LABEL org.opencontainers.image.title="tidegate-dns" \
      org.opencontainers.image.description="DNS server of Tidegate" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY root/ /
USER 65532:65532
ENTRYPOINT ["/usr/bin/tidegate-dns"]
