//! Tests of the Debian packages: they are built, installed on a machine with systemd and dpkg, upgraded while
//! a client sends traffic, removed and purged.

mod ansible;
mod dns;
mod gateway;
mod quickstart;
mod stage;

use std::{fs, process::Command};

use lab::host::wait;
use stage::{NEXT, Stage, build, during, guide, packages};

/// F015 (systemd), F017, F134: the commands of the guide (`docs/how-to/debian-packages.md`) install the
/// packages on a machine without external network, and start control server, agent and a Service that
/// responds. An upgrade loses no packet, and a purge leaves nothing.
#[test]
fn f015_f017_f134_one_command_brings_up_control_and_agent_an_upgrade_loses_no_packet_and_purging_leaves_nothing()
 {
    let stage = Stage::new();
    // A slow start, as on a busy machine: the next command must still reach a ready server.
    let slow = "mkdir -p /etc/systemd/system/tidegate-api.service.d
        printf '[Service]\\nExecStartPre=/bin/sleep 2\\n' >/etc/systemd/system/tidegate-api.service.d/slow.conf";
    stage.machine.run(slow).unwrap();
    let (kernel, traces) = (stage.kernel(), stage.traces());
    assert!(!kernel.contains("default via"), "there is no way out: {kernel}");
    assert!(!kernel.contains("tidegate"), "{kernel}");

    fs::write(stage.machine.path("/srv/packages/web.yaml"), guide("One machine", "yaml")).unwrap();
    stage.machine.run(&guide("One machine", "sh")).unwrap();
    let agent = stage.running("tidegate-agent");
    stage.running("tidegate-api");
    look_at_privileges(&stage);
    look_at_access(&stage);
    // The pages that the settings files name are installed.
    stage
        .machine
        .run("grep -ho '/usr/share/doc/[a-z/-]*[.]md' /etc/tidegate/*.toml | sort -u >/tmp/pages; test -s /tmp/pages; xargs ls </tmp/pages")
        .unwrap();
    let address = stage.address();

    let install = guide("One machine", "sh");
    let install = install.lines().next().unwrap();
    let seen = during(&stage.client, address, || {
        stage.machine.run(&format!("cd next\n{install}")).unwrap();
        wait::until_true("another agent to run", || stage.unit("tidegate-agent", "MainPID") != agent)
            .unwrap();
        let agent = stage.running("tidegate-agent");
        let program = stage.machine.run(&format!("readlink /proc/{agent}/exe")).unwrap();
        assert_eq!(program.trim(), "/usr/bin/tidegate-agent", "it is the new file");
        stage.running("tidegate-api");
    });
    println!("answered while packages were upgraded: {:?}", seen.answered);
    assert!(seen.failed.is_empty() && seen.sent_again == 0, "{seen:?}");
    let version = stage.machine.run("dpkg-query --show --showformat '${Version}' tidegate-agent").unwrap();
    assert_eq!(version, NEXT);

    let seen = during(&stage.client, address, || {
        let said = stage.machine.run(&guide("Removing", "sh").replace("purge", "remove")).unwrap();
        assert!(said.contains("apt purge tidegate-agent takes all of that out of it"), "{said}");
    });
    assert!(seen.failed.is_empty(), "removing leaves traffic alone: {seen:?}");
    assert!(stage.kernel().contains("table inet tidegate"), "what was programmed stays");

    let said = stage.machine.run("apt-get purge -y tidegate-agent").unwrap();
    assert!(said.contains("objects from the kernel"), "{said}");
    assert_eq!(stage.kernel(), kernel, "the kernel is as before, byte for byte");
    stage.machine.run("apt-get purge -y tidegate-api tidegate").unwrap();
    stage.has_no_more_traces_than(&traces);
}

/// Asserts the privileges of the processes: the agent has three capabilities, the control server has none and
/// its own user, and neither can gain more.
fn look_at_privileges(stage: &Stage) {
    let status = |unit: &str| {
        let process = stage.unit(unit, "MainPID");
        let text = stage.machine.run(&format!("cat /proc/{process}/status")).unwrap();
        move |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
            line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
        }
    };
    let (agent, api) = (status("tidegate-agent"), status("tidegate-api"));
    // Bits 10, 12 and 13: NET_BIND_SERVICE, NET_ADMIN, NET_RAW.
    assert_eq!((agent("CapBnd"), agent("CapEff")), ("0000000000003400".into(), "0000000000003400".into()));
    assert_eq!((api("CapBnd"), api("CapEff")), ("0000000000000000".into(), "0000000000000000".into()));
    assert_ne!(api("Uid"), "0");
    assert_eq!([agent("NoNewPrivs"), api("NoNewPrivs")], ["1", "1"]);
    assert_eq!([agent("Seccomp"), api("Seccomp")], ["2", "2"]);
}

/// Asserts that root needs no token at the socket, that other users have no access to it, and that requests without a
/// token are rejected on loopback. A stopped server is not started by a client of its socket.
fn look_at_access(stage: &Stage) {
    let as_nobody = |command: &str| {
        let command = format!("setpriv --reuid nobody --regid nogroup --clear-groups {command} 2>&1 || true");
        stage.machine.run(&command).unwrap()
    };
    assert!(stage.machine.run("tidegate get nodes").unwrap().contains("Ready"));
    let refused = as_nobody("tidegate get nodes");
    assert!(refused.contains("token"), "{refused}");
    let refused = as_nobody("tidegate --api unix:/run/tidegate/api.sock get nodes");
    assert!(refused.contains("ermission denied"), "{refused}");
    let answer = "curl --silent --output /dev/null --write-out '%{http_code}' http://127.0.0.1:7440/v1/nodes";
    assert_eq!(stage.machine.run(answer).unwrap(), "401");

    stage.machine.run("systemctl stop tidegate-api").unwrap();
    stage.machine.run("tidegate get nodes || true").unwrap();
    for unit in ["tidegate-api.service", "tidegate-api.socket"] {
        assert_eq!(stage.unit(unit, "ActiveState"), "inactive", "{unit}");
    }
    stage.machine.run("systemctl start tidegate-api").unwrap();
    stage.running("tidegate-api");
}

/// An agent that is installed alone starts only once its control server is configured, and keeps its settings
/// over an upgrade. In userspace mode, its relay process, which carries the traffic, runs until the package
/// is purged.
#[test]
fn an_agent_waits_for_its_settings_keeps_them_and_leaves_no_process_when_it_is_purged() {
    let stage = Stage::new();
    let (kernel, traces) = (stage.kernel(), stage.traces());
    let said = stage.machine.run("dpkg -i ./tidegate-agent_*.deb ./tidegate-sync_*.deb").unwrap();
    assert!(said.contains("say in /etc/tidegate/agent.toml where control is"), "{said}");
    assert!(said.contains("systemctl enable --now tidegate-sync@SOURCE"), "{said}");
    for unit in ["tidegate-agent", "tidegate-sync@files"] {
        assert_eq!(
            (stage.unit(unit, "ActiveState"), stage.unit(unit, "UnitFileState")),
            ("inactive".into(), "disabled".into())
        );
    }
    // A group in place of LoadCredential=, whose directory processes other than root cannot read on this machine.
    let settings = "printf 'mode = \"userspace\"\\n' >/etc/tidegate/agent.toml
        mkdir /etc/tidegate/objects.d
        cp web.yaml /etc/tidegate/objects.d/
        dpkg -i ./tidegate-api_*.deb ./tidegate_*.deb
        tidegate token create files --role operator >/etc/tidegate/sync-files.token
        chgrp adm /etc/tidegate/sync-files.token
        chmod 640 /etc/tidegate/sync-files.token
        echo 'token-file = \"/etc/tidegate/sync-files.token\"' >>/etc/tidegate/sync-files.toml
        mkdir -p /etc/systemd/system/tidegate-sync@files.service.d
        printf '[Service]\\nSupplementaryGroups=adm\\n' \
            >/etc/systemd/system/tidegate-sync@files.service.d/token.conf
        systemctl daemon-reload
        systemctl enable --now --no-block tidegate-agent tidegate-sync@files";
    fs::write(stage.machine.path("/srv/packages/web.yaml"), guide("One machine", "yaml")).unwrap();
    stage.machine.run(settings).unwrap();
    stage.running("tidegate-sync@files");
    stage.running("tidegate-agent");
    let address = stage.address();

    let agent = stage.running("tidegate-agent");
    let seen = during(&stage.client, address, || {
        stage.machine.run("cd next\ndpkg -i ./tidegate-agent_*.deb").unwrap();
        wait::until_true("another agent to run", || stage.unit("tidegate-agent", "MainPID") != agent)
            .unwrap();
        stage.running("tidegate-agent");
    });
    assert!(
        seen.failed.is_empty(),
        "the old process carries old connections, the new one new ones: {seen:?}"
    );
    let kept = stage.machine.run("cat /etc/tidegate/agent.toml").unwrap();
    assert!(kept.contains("userspace"), "a file that somebody changed stays: {kept}");

    let seen = during(&stage.client, address, || {
        stage.machine.run("dpkg --remove tidegate-agent").unwrap();
    });
    assert!(seen.failed.is_empty(), "the process that carries the traffic goes on: {seen:?}");
    let said = stage.machine.run("dpkg --purge tidegate-agent").unwrap();
    assert!(said.contains("ended 1 relay processes"), "{said}");
    assert_eq!(stage.kernel(), kernel, "the kernel is as before, byte for byte");
    // Foreign files in the configuration directory are not removed with the packages.
    stage.machine.run("dpkg --purge tidegate-api tidegate tidegate-sync; rm -r /etc/tidegate /etc/systemd/system/tidegate-sync@files.service.d").unwrap();
    stage.has_no_more_traces_than(&traces);
}

/// The packages contain the demonstration: after one `apt-get install`, `tidegate demo` starts a cluster, sends
/// requests, and leaves nothing. Then `tidegate quickstart` sets the machine itself up, and `--undo` removes that.
#[test]
fn installed_packages_bring_up_a_cluster_with_one_command() {
    let stage = Stage::new();
    stage.machine.run(&guide("Demonstration", "sh").replace("tidegate demo", "true")).unwrap();
    stage.running("tidegate-agent");
    let objects = "nft list tables; ip -br link; ip netns; ip route; ip -6 route";
    wait::until_true("the agent to program its table", || {
        stage.machine.run(objects).unwrap().contains("table inet tidegate")
    })
    .unwrap();
    let before = stage.machine.run(objects).unwrap();
    let demo = "tidegate demo --once >/tmp/demo 2>&1 || { cat /tmp/demo >&2; exit 1; }; cat /tmp/demo";
    let said = stage.machine.run(demo).unwrap();
    assert!(said.contains("through the ClusterIP, without control server"), "{said}");
    assert!(said.contains("Everything is removed"), "{said}");
    assert_eq!(stage.machine.run(objects).unwrap(), before);
    let refused =
        stage.machine.run("setpriv --reuid nobody --regid nogroup --clear-groups tidegate demo 2>&1 || true");
    assert!(refused.unwrap().contains("run it with sudo"));
    dns::check(&stage);
    gateway::check(&stage);
    quickstart::check(&stage);
}

/// If a `policy-rc.d` script forbids the start of services, as in an image build, the packages start nothing,
/// but the services are enabled for the next boot.
#[test]
fn packages_start_nothing_where_a_policy_forbids_it() {
    let stage = Stage::new();
    let policy = "printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d";
    stage.machine.run(&format!("{policy}\ndpkg -i ./tidegate-api_*.deb ./tidegate-agent_*.deb")).unwrap();
    for unit in ["tidegate-api", "tidegate-agent"] {
        assert_eq!(
            (stage.unit(unit, "ActiveState"), stage.unit(unit, "UnitFileState")),
            ("inactive".into(), "enabled".into())
        );
    }
}

#[test]
fn the_same_binaries_make_the_same_packages() {
    let again = tempfile::tempdir().unwrap();
    build(again.path(), &[("PACKAGES", "tidegate"), ("TZ", "Asia/Tokyo"), ("LANG", "de_DE")]);
    let file = fs::read_dir(again.path()).unwrap().next().unwrap().unwrap().path();
    let first = packages().join(file.file_name().unwrap());
    assert!(fs::read(&file).unwrap() == fs::read(&first).unwrap(), "{} differs", file.display());
}

/// Every man page renders without a warning.
#[test]
fn every_man_page_can_be_read_without_a_warning() {
    let root = tempfile::tempdir().unwrap();
    let mut pages = 0;
    for package in debs() {
        run("dpkg-deb", &["-x", &package, root.path().to_str().unwrap()]);
    }
    for section in ["man1", "man8"] {
        for page in fs::read_dir(root.path().join("usr/share/man").join(section)).unwrap() {
            let page = page.unwrap().path();
            let output = Command::new("man")
                .args(["--warnings", "--encoding=UTF-8", "--local-file"])
                .arg(&page)
                .env("LC_ALL", "C.UTF-8")
                .env("MANWIDTH", "100")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{}: {said}", page.display());
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("SYNOPSIS") && text.contains("tidegate"), "{}", page.display());
            pages += 1;
        }
    }
    assert!(pages > 40, "{pages} pages");
}

/// A real bash with the installed completion files completes the commands and flags of all programs.
#[test]
fn bash_completes_commands_and_flags_of_all_programs() {
    let root = tempfile::tempdir().unwrap();
    for package in debs() {
        run("dpkg-deb", &["-x", &package, root.path().to_str().unwrap()]);
    }
    let directory = root.path().join("usr/share/bash-completion/completions");
    for (typed, offered) in [
        ("tidegate app", "apply"),
        ("tidegate completions f", "fish"),
        ("tidegate-agent clean", "cleanup"),
        ("tidegate-api che", "check"),
        ("tidegate-sync kub", "kubernetes"),
        ("tidegate-sync --prune", "--prune-limit"),
        ("tidegate-dns --ups", "--upstream"),
        ("tidegate-gateway --conne", "--connections"),
        ("tidegate-lab --on", "--once"),
    ] {
        let program = typed.split(' ').next().unwrap();
        let last = typed.split(' ').next_back().unwrap();
        let script = format!(
            "PATH='{}':$PATH; source '{}'; complete -p {program} >/dev/null
             COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{typed}'; COMP_POINT=${{#COMP_LINE}}
             \"$(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/')\" {program} '{last}' ''
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            root.path().join("usr/bin").display(),
            directory.join(program).display()
        );
        let words = run("bash", &["--norc", "-c", &script]);
        assert!(words.lines().any(|word| word == offered), "`{typed}` is offered {words:?}");
        assert!(!words.lines().any(|word| word == "manual"), "what is hidden is not offered");
    }
    for (file, begins) in [
        ("zsh/vendor-completions/_tidegate", "#compdef tidegate"),
        ("fish/vendor_completions.d/tidegate.fish", "complete"),
    ] {
        let text = fs::read_to_string(root.path().join("usr/share").join(file)).unwrap();
        assert!(text.starts_with(begins) && text.contains("TIDEGATE_COMPLETE"), "{file}");
    }
}

/// Packages declare their libraries and configuration files, and contain no path of the build directory.
#[test]
fn packages_say_what_they_need_and_own() {
    for package in debs() {
        let depends = run("dpkg-deb", &["--field", &package, "Depends"]);
        assert!(depends.contains("libc6 (>= "), "{package}: {depends}");
        let list = run("dpkg-deb", &["--contents", &package]);
        assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
        assert!(list.contains("/usr/share/doc/") && list.contains("/copyright"), "{list}");
    }
    let agent = debs().into_iter().find(|package| package.contains("tidegate-agent_")).unwrap();
    let control = tempfile::tempdir().unwrap();
    run("dpkg-deb", &["--control", &agent, control.path().to_str().unwrap()]);
    let conffiles = fs::read_to_string(control.path().join("conffiles")).unwrap();
    assert_eq!(conffiles, "/etc/tidegate/agent.toml\n");
    let list = run("dpkg-deb", &["--contents", &agent]);
    for file in [
        "usr/lib/systemd/system/tidegate-agent.service",
        "usr/lib/modules-load.d/tidegate-agent.conf",
        "usr/lib/cni/tidegate-cni",
    ] {
        assert!(list.contains(file), "{list}");
    }
}

/// Returns the package files of the version under test.
fn debs() -> Vec<String> {
    let files = fs::read_dir(packages()).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let files: Vec<_> = files.map(|path| path.display().to_string()).collect();
    assert_eq!(files.len(), 7, "{files:?}");
    files
}

fn run(program: &str, arguments: &[&str]) -> String {
    lab::host::shell::run(program, arguments).unwrap()
}
