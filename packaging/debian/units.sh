# What the scripts of all packages do with units of systemd. Where systemd does not run, as in an image that is being built,
# only what is to start at the next boot is noted.

runs_systemd() {
    [ -d /run/systemd/system ]
}

# Whoever runs the machine may have said that packages start nothing.
is_allowed() { # is_allowed UNIT ACTION
    [ -x /usr/sbin/policy-rc.d ] || return 0
    is_allowed_status=0
    /usr/sbin/policy-rc.d "$1" "$2" || is_allowed_status=$?
    [ "$is_allowed_status" -ne 101 ]
}

# Makes the unit start at boot, unless the administrator has said otherwise before.
enable_unit() { # enable_unit UNIT
    if deb-systemd-helper --quiet was-enabled "$1"; then
        deb-systemd-helper enable "$1" >/dev/null
    else
        deb-systemd-helper update-state "$1" >/dev/null
    fi
}

# Starts the new version where the unit is to run. It is ready then, unless `--no-block` is said.
restart_unit() { # restart_unit UNIT [--no-block]
    runs_systemd || return 0
    systemctl daemon-reload || true
    if systemctl --quiet is-enabled "$1" 2>/dev/null || systemctl --quiet is-active "$1"; then
        if is_allowed "$1" restart; then
            systemctl ${2:+"$2"} restart "$1" || true
        fi
    fi
}

# The new version takes over where the old one runs; a pattern stands for every unit that it fits.
restart_running() { # restart_running PATTERN
    runs_systemd || return 0
    systemctl daemon-reload || true
    if is_allowed "$1" restart; then
        systemctl --no-block try-restart "$1" || true
    fi
}

# A new process of the new version takes over from the running one. New settings of the unit apply to a restarted one only.
reload_running() { # reload_running UNIT
    runs_systemd || return 0
    if [ "$(systemctl show --property=NeedDaemonReload --value "$1")" != no ]; then
        restart_running "$1"
    elif systemctl --quiet is-active "$1" && is_allowed "$1" reload; then
        systemctl --no-block reload "$1" || true
    fi
}

stop_unit() { # stop_unit UNIT
    runs_systemd || return 0
    if is_allowed "$1" stop; then
        systemctl stop "$1" || true
    fi
}

# After the unit's file is gone.
forget_unit() { # forget_unit UNIT ACTION
    if [ "$2" = purge ]; then
        deb-systemd-helper purge "$1" >/dev/null || true
        # Links that `systemctl enable` made are not in the helper's list.
        find /etc/systemd/system/multi-user.target.wants -name "$1" -type l -delete 2>/dev/null || true
    fi
    if runs_systemd; then
        systemctl daemon-reload || true
        systemctl reset-failed "$1" 2>/dev/null || true
    fi
}
