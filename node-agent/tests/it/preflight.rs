//! Tests of `tidegate-agent preflight` on the kernel of this machine and on that of the guest VM
//! (`lab/guest.sh`). In the VM, IPVS is a set of modules, and nf_tables lacks the family inet, which nftables
//! mode requires.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, clippy::print_stdout, reason = "a test may fail")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{
    Namespace,
    isolated::{guest, rerun},
};

const AGENT: &str = env!("CARGO_BIN_EXE_tidegate-agent");

fn preflight(arguments: &[&str]) -> Output {
    Command::new(AGENT).arg("preflight").args(arguments).output().unwrap()
}

/// Runs `preflight` for a proxy mode, with further arguments `more`, and returns its report. Asserts that
/// exit status and message match the report.
fn report(mode: &str, more: &[&str]) -> Value {
    checked(mode, &preflight(&[&["--mode", mode, "-o", "json"], more].concat()))
}

fn checked(mode: &str, output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{mode}: {error}: {said}"));
    assert_eq!(report["mode"], mode);
    let fatal: Vec<_> = findings(&report)
        .filter(|finding| finding["required"] == true && finding["state"] == "missing")
        .collect();
    assert_eq!(report["usable"], fatal.is_empty());
    assert_eq!(output.status.code(), Some(i32::from(!fatal.is_empty())), "{said}");
    for finding in fatal {
        assert!(said.contains(finding["need"].as_str().unwrap()), "{said}");
        assert!(finding["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{finding}");
    }
    report
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().unwrap().iter()
}

fn state<'a>(report: &'a Value, need: &str) -> &'a str {
    let found = findings(report).find(|finding| finding["need"] == need);
    found.unwrap_or_else(|| panic!("{need} is listed: {report}"))["state"].as_str().unwrap()
}

/// F084, F085: `preflight` lists every required kernel module with its state, and its result matches the
/// actual features of this machine's kernel.
#[test]
fn f084_f085_this_machine_is_judged_by_what_its_kernel_can_do() {
    for mode in ["nftables", "userspace"] {
        let report = report(mode, &["--no-load"]);
        assert_eq!(report["usable"], true, "the other tests of this workspace need it: {report}");
        assert_ne!(state(&report, "nf_tables"), "missing");
    }
    let report = report("ipvs", &["--no-load"]);
    // A different method from that of preflight.
    let has_ipvs = Path::new("/proc/net/ip_vs").exists();
    for module in ["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh"] {
        assert_eq!(state(&report, module) != "missing", has_ipvs, "{module}: {report}");
    }
    let mut named = findings(&report).filter_map(|finding| finding["need"].as_str());
    assert!(named.any(|need| need == "nf_conntrack" || need == "nf_conntrack_ipv4"), "{report}");
    if !has_ipvs {
        let output = preflight(&["--mode", "ipvs", "--no-load"]);
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("mode ipvs cannot be used") && table.contains("linux-image-"), "{table}");
    }
}

#[test]
fn f085_without_rights_or_tools_everything_missing_is_named_with_its_remedy() {
    let output = Command::new(AGENT)
        .args(["preflight", "--mode", "iptables", "--no-load", "-o", "json"])
        .env_clear()
        .env("PATH", "/does/not/exist")
        .output()
        .unwrap();
    let report = checked("iptables", &output);
    assert_eq!(state(&report, "iptables"), "missing");
    assert_eq!(report["usable"], false);

    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", AGENT, "preflight", "--mode", "ipvs", "-o", "json"])
        .output()
        .unwrap();
    let report = checked("ipvs", &output);
    assert_eq!(state(&report, "CAP_NET_ADMIN"), "missing");
    assert_eq!(report["usable"], false);
}

/// F117: `preflight` lists the requirements of address announcements: the sockets that it can open, the
/// networks found, and a packet filter that blocks clients.
#[test]
fn f117_preflight_says_where_addresses_can_be_announced_and_what_is_in_the_way() {
    let node = Namespace::new("preflight");
    let look = |mode: &str| -> Value {
        let said = node.exec(&[AGENT, "preflight", "--mode", mode, "--no-load", "-o", "json"]);
        serde_json::from_str(&said).unwrap()
    };
    let report = look("nftables");
    assert_eq!((state(&report, "CAP_NET_RAW"), state(&report, "networks")), ("present", "missing"));
    for (name, address) in [("one", "192.0.2.1/24"), ("two", "198.51.100.1/24")] {
        node.ip(&["link", "add", name, "type", "veth", "peer", "name", &format!("{name}-far")]);
        node.ip(&["addr", "add", address, "dev", name]);
        node.ip(&["link", "set", name, "up"]);
    }
    node.exec(&["sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.two.rp_filter=1"]);
    let report = look("nftables");
    let networks = findings(&report).find(|finding| finding["need"] == "networks").unwrap();
    assert_eq!(networks["detail"], "one 192.0.2.0/24, two 198.51.100.0/24");
    assert_eq!(state(&report, "net.ipv4.conf.*.rp_filter"), "missing");
    assert_eq!(report["usable"], true, "a proxy mode does not need them");
    let wrong = Command::new(AGENT).args(["preflight", "--peer-multiplier", "1"]).output().unwrap();
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("--peer-multiplier"));
}

#[test]
fn f077_modes_of_windows_nodes_are_refused_as_linux_only() {
    for mode in ["winuserspace", "kernelspace"] {
        for command in [&["preflight"][..], &["run"], &["cleanup"]] {
            let output = Command::new(AGENT).args(command).args(["--mode", mode]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                !output.status.success() && said.contains("Linux only") && said.contains("--mode"),
                "{said}"
            );
        }
    }
}

/// F084, F085: in the guest VM (`lab/guest.sh`), `preflight` reports loaded and loadable modules, loads
/// missing ones on demand, and reports an unsupported mode.
#[test]
fn f084_f085_modules_are_loaded_on_demand_on_the_second_kernel() {
    if std::env::var_os("TIDEGATE_GUEST").is_none() {
        let test = "preflight::f084_f085_modules_are_loaded_on_demand_on_the_second_kernel";
        // The guest has its modules outside the shared file system.
        rerun(guest().env("MODPROBE_OPTIONS", "-d /run/modules"), &[test]);
        return;
    }
    let is_loaded = |name: &str| {
        let modules = fs::read_to_string("/proc/modules").unwrap();
        modules.lines().any(|line| line.split(' ').next() == Some(name))
    };
    assert!(Command::new("modprobe").args(["-r", "ip_vs_sh"]).status().unwrap().success());
    let only_looked = report("ipvs", &["--no-load"]);
    println!("without loading: ip_vs_sh is {}", state(&only_looked, "ip_vs_sh"));
    assert_eq!(state(&only_looked, "ip_vs_sh"), "loadable");
    assert_eq!(only_looked["usable"], true, "what can be loaded is not missing: {only_looked}");
    assert!(!is_loaded("ip_vs_sh"), "looking loads nothing");
    let loaded = report("ipvs", &[]);
    assert_eq!(state(&loaded, "ip_vs_sh"), "present");
    assert!(is_loaded("ip_vs_sh"));
    for module in ["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_mh", "nf_conntrack", "dummy", "ip_set", "xt_nat"]
    {
        println!("{module} is {}", state(&loaded, module));
        assert_eq!(state(&loaded, module), "present");
    }
    let nftables = report("nftables", &[]);
    println!("nf_tables is {}", state(&nftables, "nf_tables"));
    assert_eq!(state(&nftables, "nf_tables"), "missing", "it has no family inet: {nftables}");
}
