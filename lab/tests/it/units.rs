//! Tests of the systemd units: security exposure and validity, both according to systemd.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test may fail, and prints what it found")]

use std::{fs, path::Path, process::Command};

/// Systemd units with their maximum exposure score (`systemd-analyze security`) in tenths: lower for the API
/// server and the adapter, which need no privileges, than for the agent, which programs the kernel.
const UNITS: [(&str, u32); 5] = [
    ("tidegate-api.service", 20),
    ("tidegate-agent.service", 45),
    ("tidegate-sync@.service", 20),
    ("tidegate-dns.service", 25),
    ("tidegate-gateway.service", 25),
];

fn unit(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd").join(name).display().to_string()
}

#[test]
fn the_units_are_no_more_exposed_than_they_have_to_be() {
    for (name, bar) in UNITS {
        let output = Command::new("systemd-analyze")
            .args(["security", "--no-pager", "--offline=yes", &format!("--threshold={bar}"), &unit(name)])
            .output()
            .expect("systemd-analyze is there: lab/setup.sh installs it");
        let said = String::from_utf8_lossy(&output.stdout);
        let overall = said.lines().find(|line| line.contains("Overall exposure"));
        let overall = overall.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
        println!("{} (at most {}.{})", overall.trim(), bar / 10, bar % 10);
        assert!(output.status.success(), "{said}");
    }
}

/// systemd accepts every setting in the units. The test is needed because systemd itself only logs a warning
/// for an unknown setting.
#[test]
fn systemd_understands_every_line_of_the_units() {
    for (name, _) in UNITS {
        let output =
            Command::new("systemd-analyze").args(["verify", "--man=no", &unit(name)]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let faults: Vec<_> = said
            .lines()
            .filter(|line| line.contains(name.trim_end_matches(".service")) && line.contains(".service:"))
            .collect();
        // The programs are not installed on the test machine.
        let faults: Vec<_> = faults.into_iter().filter(|line| !line.contains("is not executable")).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

#[test]
fn the_units_ask_for_what_the_programs_do() {
    let agent = fs::read_to_string(unit("tidegate-agent.service")).unwrap();
    let bounding = agent.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    assert_eq!(bounding, "CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE");
    // The relay of mode userspace keeps carrying traffic, and is in the same control group.
    assert!(agent.lines().any(|line| line == "KillMode=process"));
    let api = fs::read_to_string(unit("tidegate-api.service")).unwrap();
    assert!(api.lines().any(|line| line == "CapabilityBoundingSet="));
    let sync = fs::read_to_string(unit("tidegate-sync@.service")).unwrap();
    assert!(sync.lines().any(|line| line == "CapabilityBoundingSet="));
    let dns = fs::read_to_string(unit("tidegate-dns.service")).unwrap();
    assert!(dns.lines().any(|line| line == "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"));
    let gateway = fs::read_to_string(unit("tidegate-gateway.service")).unwrap();
    for line in ["CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "ExecReload=/bin/kill -HUP $MAINPID"] {
        assert!(gateway.lines().any(|found| found == line), "{line}");
    }
    assert!(api.lines().any(|line| line == "MemoryMax=50%"));
    for unit in [agent, api, sync, dns, gateway] {
        // A core dump would contain keys and passwords.
        // By default, systemd gives up after five starts in ten seconds.
        let all = [
            "Type=notify",
            "NotifyAccess=main",
            "Restart=always",
            "StartLimitIntervalSec=0",
            "ProtectSystem=strict",
            "LimitCORE=0",
        ];
        for line in all {
            assert!(unit.lines().any(|found| found == line), "{line}");
        }
        assert!(unit.contains("\nWatchdogSec="));
    }
}
