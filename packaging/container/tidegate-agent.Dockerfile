# The agent of a node. It programs the network namespace that it is in: that of the machine (--network host), or its own.
# docker run --cap-drop ALL --cap-add NET_ADMIN --cap-add NET_RAW --cap-add NET_BIND_SERVICE --network host …
FROM scratch
LABEL org.opencontainers.image.title="tidegate-agent" \
      org.opencontainers.image.description="Agent of a Tidegate node" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY root/ /
COPY state/ /var/lib/tidegate-agent/
# The kernel gives capabilities to root only; which ones, the engine is told.
USER 0:0
ENTRYPOINT ["/usr/bin/tidegate-agent"]
