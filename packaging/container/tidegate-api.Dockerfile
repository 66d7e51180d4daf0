# The control server, and the command `tidegate` to look at it: docker exec CONTAINER tidegate status
FROM scratch
LABEL org.opencontainers.image.title="tidegate-api" \
      org.opencontainers.image.description="Control server of Tidegate" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY root/ /
COPY --chown=65532:65532 state/ /var/lib/tidegate-api/
# It needs no privilege at all.
USER 65532:65532
WORKDIR /var/lib/tidegate-api
EXPOSE 7440/tcp
ENTRYPOINT ["/usr/bin/tidegate-api"]
