# Clients and backends of the lab: curl, and a shell with a small web server.
FROM scratch
COPY root/ /
ENTRYPOINT ["/bin/busybox"]
