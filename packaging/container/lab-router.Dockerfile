# A router for the lab: FRR as the machine has it installed, curl, and a shell.
FROM scratch
COPY root/ /
ENTRYPOINT ["/bin/busybox", "sh", "/etc/frr/start.sh"]
