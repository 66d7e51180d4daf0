//! Tests of `tidegate-agent doctor` on misconfigured machines. Each test creates a problem in a network namespace,
//! asserts that it is found, runs the command that `doctor` proposes, and asserts that the problem is no longer
//! reported.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test may fail")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Child, Command, Output, Stdio},
};

use model::{kinds::service::Protocol, program::Masquerade};
use node_agent::dataplane::{
    Dataplane as _, Scope,
    nftables::{NftablesBackend, NftablesOptions},
};
use serde_json::Value;

use crate::support::{Namespace, programs::*};

const AGENT: &str = env!("CARGO_BIN_EXE_tidegate-agent");

fn doctor(node: &Namespace, arguments: &[&str]) -> Output {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", node.name(), AGENT, "doctor", "-o", "json"]).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs `doctor` for a proxy mode on a node and returns all findings (results of its checks).
fn look(node: &Namespace, mode: &str) -> Vec<Value> {
    let output = doctor(node, &["--mode", mode]);
    let said = String::from_utf8_lossy(&output.stderr);
    let findings: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let is_broken = findings.iter().any(|finding| finding["state"] == "Broken");
    assert_eq!(output.status.code(), Some(i32::from(is_broken)), "{said}");
    findings
}

/// Runs `doctor` and returns those findings of the check `check` whose state is not OK.
fn odd(node: &Namespace, mode: &str, check: &str) -> Vec<Value> {
    odd_of(&look(node, mode), check)
}

/// Selects from `findings` those of the check `check` whose state is not OK.
fn odd_of(findings: &[Value], check: &str) -> Vec<Value> {
    let of_check: Vec<_> = findings.iter().filter(|finding| finding["check"] == check).cloned().collect();
    assert!(!of_check.is_empty(), "{check} is looked at");
    let odd: Vec<_> = of_check.into_iter().filter(|finding| finding["state"] != "Fine").collect();
    assert!(odd.iter().all(|finding| finding["why"].is_string() && finding["fix"].is_string()), "{odd:?}");
    odd
}

/// Runs the fix that a finding proposes, as shell commands: the parts of its text in backticks, or the whole
/// text if there are none.
fn put_right(node: &Namespace, finding: &Value) {
    let fix = finding["fix"].as_str().unwrap();
    let quoted: Vec<_> = fix.split('`').skip(1).step_by(2).collect();
    let commands = if quoted.is_empty() { vec![fix] } else { quoted };
    for command in commands {
        node.exec(&["sh", "-c", command]);
    }
}

/// Runs `doctor` and asserts that the check `check` has `count` findings, then applies their fixes and
/// asserts that it has none.
fn is_put_right(node: &Namespace, mode: &str, check: &str, count: usize) {
    are_put_right(node, mode, &odd(node, mode, check), check, count);
}

/// Asserts that `found`, the findings of an earlier run, contain `count` findings of the check `check`, then
/// applies their fixes and asserts that a new run has none.
fn are_put_right(node: &Namespace, mode: &str, found: &[Value], check: &str, count: usize) {
    assert_eq!(found.len(), count, "{found:?}");
    for finding in found {
        put_right(node, finding);
    }
    assert_eq!(odd(node, mode, check), Vec::<Value>::new(), "after {found:?}");
}

/// `doctor --fix --yes` enables IP forwarding, which counts as a safe fix; without `--yes` the command fails
/// and changes nothing. `doctor` also finds sysctls that would make every node in ipvs mode reply to ARP
/// requests.
#[test]
fn what_is_safe_is_put_right_when_somebody_says_so() {
    const CHECK: &str = "net.ipv4.ip_forward=1";
    let node = Namespace::new("doctor-fix");
    node.exec(&["sysctl", "-qw", "net.ipv4.ip_forward=0"]);
    let found = odd(&node, "nftables", CHECK);
    assert_eq!(found[0]["safeFix"], "IpForward", "{found:?}");
    let forwards = || node.exec(&["cat", "/proc/sys/net/ipv4/ip_forward"]);

    let unasked = doctor(&node, &["--fix"]);
    let said = String::from_utf8_lossy(&unasked.stderr);
    assert!(!unasked.status.success() && said.contains("--yes"), "{said}");
    assert_eq!(forwards(), "0\n");
    let fixed = doctor(&node, &["--fix", "--yes"]);
    let said = String::from_utf8_lossy(&fixed.stderr);
    assert!(said.contains("IpForward Done: net.ipv4.ip_forward was 0 and is 1"), "{said}");
    assert_eq!(forwards(), "1\n");
    assert_eq!(odd(&node, "nftables", CHECK), Vec::<Value>::new());

    node.exec(&["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=0"]);
    assert_eq!(odd(&node, "ipvs", "arp-flux").len(), 1);
    node.exec(&["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2"]);
    assert_eq!(odd(&node, "ipvs", "arp-flux"), Vec::<Value>::new());
}

/// `doctor` finds drop policies and drop rules at the end of chains for forwarded traffic, in native tables
/// and in those of both iptables variants (nft and legacy); after the fixes, the traffic passes.
#[test]
fn rules_that_drop_what_is_forwarded_are_found_and_let_it_pass_after_their_fix() {
    const CHECK: &str = "forward-drop";
    let node = Namespace::new("doctor-forward");
    node.nft(
        "table inet firewall { chain forwarding { type filter hook forward priority 10; policy drop; ct state new accept; }\n\
         chain incoming { type filter hook input priority 0; policy drop; ct state vmap { established : accept }; }; }\n\
         table ip6 other { chain forwarding { type filter hook forward priority 0; jump final; }; chain final { counter reject; }; }\n\
         table ip harmless { chain forwarding { type filter hook forward priority 0; ip daddr 192.0.2.1 drop; }; }",
    );
    node.exec(&["iptables-nft", "-P", "FORWARD", "DROP"]);
    node.exec(&["iptables-nft", "-N", "DOCKER-USER"]);
    node.exec(&["iptables-nft", "-A", "FORWARD", "-j", "DOCKER-USER"]);
    node.exec(&["iptables-legacy", "-A", "FORWARD", "-j", "DROP"]);
    let seen = look(&node, "userspace");
    assert_eq!(odd_of(&seen, CHECK), Vec::<Value>::new(), "nothing is forwarded in this mode");
    are_put_right(&node, "userspace", &odd_of(&seen, "input-drop"), "input-drop", 1);
    let seen = look(&node, "nftables");
    assert_eq!(odd_of(&seen, "iptables-flavours").len(), 1);
    are_put_right(&node, "nftables", &odd_of(&seen, CHECK), CHECK, 4);
    assert!(
        node.exec(&["iptables-nft", "-S", "DOCKER-USER"]).contains("--ctstate DNAT"),
        "Docker's rules are left alone"
    );
    is_put_right(&node, "ipvs", CHECK, 4);
    node.exec(&["iptables-legacy", "-F"]);
    assert_eq!(odd(&node, "nftables", "iptables-flavours"), Vec::<Value>::new());
}

/// `doctor` finds rules of other programs, created by nft, iptables or ip rule, that use the bits of the
/// packet mark that the agent uses.
#[test]
fn rules_of_others_about_our_bits_of_the_mark_are_found() {
    const CHECK: &str = "mark-clash";
    let node = Namespace::new("doctor-marks");
    node.nft(
        "table inet harmless { chain pre { type filter hook prerouting priority mangle; meta mark set 0x1;\n\
           meta mark & 0xff0000 == 0x10000 accept; ct mark set 0x4000; }; }",
    );
    node.ip(&["rule", "add", "fwmark", "0x80000/0xff0000", "table", "100"]);
    assert_eq!(odd(&node, "nftables", CHECK), Vec::<Value>::new());
    node.nft(
        "table inet vpn { chain pre { type filter hook prerouting priority mangle; meta mark set meta mark | 0x4000; }\n\
           chain forwarding { type filter hook forward priority mangle; meta mark set 0x1; meta mark & 0xc000 == 0x8000 accept; }; }",
    );
    node.exec(&["iptables-nft", "-t", "mangle", "-A", "OUTPUT", "-j", "MARK", "--or-mark", "0x4000"]);
    node.ip(&["rule", "add", "fwmark", "0xca6c", "table", "101"]);
    node.ip(&["-6", "rule", "add", "fwmark", "0x4000/0x4000", "table", "101"]);
    let found = odd(&node, "nftables", CHECK);
    assert_eq!(found.len(), 6, "{found:?}");
    let other = doctor(&node, &["--masquerade-bit", "24"]);
    let other: Vec<Value> = serde_json::from_slice(&other.stdout).unwrap();
    let left: Vec<_> =
        other.iter().filter(|finding| finding["check"] == CHECK && finding["state"] != "Fine").collect();
    // Clearing the whole mark clears every bit.
    assert_eq!(left.len(), 1, "{left:?}");
}

/// `doctor` finds rules of other programs that translate connections to Services before our rules, or exempt them from
/// connection tracking; its fixes remove them. Rules for other traffic, as of Docker and kube-proxy, are no finding.
#[test]
fn rules_that_capture_traffic_of_services_are_found() {
    const CHECK: &str = "captured-traffic";
    let node = Namespace::new("doctor-capture");
    let frontends = [
        (at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::Never, &[("10.1.1.2", 8080, 1)])),
        (at("fd96::1", Protocol::Tcp, 80), forward(Masquerade::Never, &[("fd01:1::2", 8080, 1)])),
    ];
    let services = desired(vec![("web", program(&["10.96.0.1", "fd96::1"], &[], &frontends))]);
    node.run(|| {
        let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
        verified(&backend.apply(&services, &Scope::Everything));
    });
    node.nft(
        "table ip harmless { chain pre { type nat hook prerouting priority -110; ip daddr 192.0.2.9 tcp dport 80 dnat to 10.1.1.2;\n\
           fib daddr type local tcp dport 80 redirect to :8080; }\n\
           chain late { type nat hook prerouting priority -90; tcp dport 80 redirect to :8080; }\n\
           chain raw { type filter hook prerouting priority -300; udp dport 80 notrack; tcp dport 81 notrack; ip saddr 192.0.2.9 notrack; }; }",
    );
    for rule in [
        "-N DOCKER",
        "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
        "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:80",
        "-N OTHER-SERVICES",
        "-A PREROUTING -j OTHER-SERVICES",
        "-A OTHER-SERVICES -d 10.97.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:80",
    ] {
        node.exec(&["sh", "-c", &format!("iptables-nft -t nat {rule}")]);
    }
    assert_eq!(odd(&node, "nftables", CHECK), Vec::<Value>::new());
    node.nft(
        "table inet untracked { chain pre { type filter hook prerouting priority -300; tcp dport 80 notrack; }; }\n\
         table ip stolen { chain pre { type nat hook prerouting priority -110; ip daddr 10.96.0.0/12 tcp dport 80 dnat to 10.1.1.2:8080; }; }\n\
         table ip6 stolen { chain pre { type nat hook prerouting priority -110; jump more; }; chain more { ip6 daddr fd96::1 dnat to fd01:1::2; }; }",
    );
    node.exec(&[
        "sh",
        "-c",
        "iptables-nft -t nat -A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080",
    ]);
    let found = odd(&node, "nftables", CHECK);
    let said: Vec<_> = found.iter().map(|finding| finding["message"].as_str().unwrap()).collect();
    assert!(
        said.contains(
            &"table inet untracked, chain pre: `rule 1` exempts from connection tracking connections to 10.96.0.1 TCP port 80"
        ),
        "{said:?}"
    );
    are_put_right(&node, "nftables", &found, CHECK, 4);
}

/// `doctor` finds chains, tables and the interface that kube-proxy has left, and its fixes remove them. While
/// a process called kube-proxy is running, `doctor` reports an error and fails.
#[test]
fn what_kube_proxy_left_is_found_and_removed_by_what_the_finding_says() {
    const CHECK: &str = "kube-proxy";
    let node = Namespace::new("doctor-kube");
    node.nft("table ip kube-proxy { chain services { }; }; table ip6 kube-proxy { chain services { }; }");
    for tool in ["iptables-nft", "ip6tables-nft", "iptables-legacy"] {
        node.exec(&[tool, "-t", "nat", "-N", "KUBE-SERVICES"]);
        node.exec(&[tool, "-t", "nat", "-A", "PREROUTING", "-j", "KUBE-SERVICES"]);
    }
    let named = doctor(&node, &["--mode", "iptables", "--naming", "kube", "--all"]);
    let named: Vec<Value> = serde_json::from_slice(&named.stdout).unwrap();
    let tables =
        named.iter().filter(|finding| finding["check"] == CHECK && finding["state"] == "Warning").count();
    assert_eq!(tables, 2, "our own chains have these names then");
    is_put_right(&node, "nftables", CHECK, 5);

    let process = Impostor::start(&node, "kube-proxy");
    let found = odd(&node, "nftables", CHECK);
    assert_eq!((found.len(), &found[0]["state"]), (1, &Value::from("Broken")), "{found:?}");
    drop(process);
    assert_eq!(odd(&node, "nftables", CHECK), Vec::<Value>::new());
}

/// `doctor` finds networks with different MTUs if the TCP MSS is not clamped, and a bridge that forwards
/// replies without netfilter.
#[test]
fn sizes_of_packets_and_bridges_are_looked_at() {
    const CALLS: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    let node = Namespace::new("doctor-links");
    for (name, address, mtu) in [("one", "192.0.2.1/24", "1500"), ("two", "198.51.100.1/24", "1400")] {
        node.ip(&["link", "add", name, "type", "veth", "peer", "name", &format!("{name}-far")]);
        node.ip(&["link", "set", name, "mtu", mtu, "up"]);
        node.ip(&["addr", "add", address, "dev", name]);
    }
    let found = odd(&node, "nftables", "mtu");
    assert!(
        found[0]["message"].as_str().unwrap().contains("1500 bytes that come by one do not fit two"),
        "{found:?}"
    );
    node.nft(
        "table inet clamp { chain forwarding { type filter hook forward priority mangle;\n\
           tcp flags syn tcp option maxseg size set rt mtu; }; }",
    );
    assert_eq!(odd(&node, "nftables", "mtu"), Vec::<Value>::new(), "segments are made smaller");
    node.exec(&["nft", "delete", "table", "inet", "clamp"]);
    node.ip(&["link", "set", "one", "mtu", "1400"]);
    assert_eq!(odd(&node, "nftables", "mtu"), Vec::<Value>::new());

    node.ip(&["link", "add", "name", "bridge1", "type", "bridge"]);
    node.ip(&["link", "set", "bridge1", "mtu", "1400", "up"]);
    node.ip(&["addr", "add", "203.0.113.1/24", "dev", "bridge1"]);
    let calls = |value: &str| {
        node.exec(&["sh", "-c", &format!("if [ -e {CALLS} ]; then echo {value} > {CALLS}; fi")])
    };
    calls("0");
    assert_eq!(odd(&node, "nftables", "bridge-traffic").len(), 1);
    calls("1");
    if !fs::exists(CALLS).unwrap() {
        node.ip(&["link", "delete", "bridge1"]);
    }
    assert_eq!(odd(&node, "nftables", "bridge-traffic"), Vec::<Value>::new());
}

/// `doctor` finds programs that announce addresses, but only in the node's own namespace. Known programs are
/// identified by process name, unknown ones by port.
#[test]
fn other_programs_that_announce_are_found_where_they_are() {
    const CHECK: &str = "other-announcer";
    let (node, other) = (Namespace::new("doctor-others"), Namespace::new("doctor-elsewhere"));
    let process = Impostor::start(&node, "keepalived");
    let listener = node.run(|| TcpListener::bind("0.0.0.0:179").unwrap());
    let found = odd(&node, "nftables", CHECK);
    let said: Vec<_> = found.iter().map(|finding| finding["message"].as_str().unwrap()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.contains(
            &format!("keepalived (process {}) announces addresses by VRRP", process.0.id()).as_str()
        ),
        "{said:?}"
    );
    assert!(said.contains(&"somebody listens at port 179 (BGP)"), "{said:?}");
    assert_eq!(odd(&other, "nftables", CHECK), Vec::<Value>::new());
    drop((process, listener));
    assert_eq!(odd(&node, "nftables", CHECK), Vec::<Value>::new());
}

/// Process with the name of another program, killed when dropped.
struct Impostor(Child);

impl Impostor {
    fn start(node: &Namespace, name: &str) -> Self {
        let script = format!("echo {name} > /proc/self/comm; echo ready; read line");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", node.name(), "bash", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Self(child)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.0.stdin.take().map(|mut input| input.write_all(b"\n"));
        let _ = self.0.wait();
    }
}

/// `docs/how-to/host-diagnostics.md` explains every check of `doctor` in a row of its table.
#[test]
fn every_check_is_explained_in_the_documentation() {
    use model::{kinds::node::ProxyMode, wire::doctor::CLOCK};
    use node_agent::{doctor::checks::Check, preflight::needs};
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/host-diagnostics.md");
    let page = fs::read_to_string(page).unwrap();
    let needs = ProxyMode::ALL.iter().copied().flat_map(needs::of).map(|need| need.name);
    let announcing = ["CAP_NET_RAW", "networks", "net.ipv4.conf.*.rp_filter", CLOCK];
    for word in needs.chain(Check::ALL.map(Check::as_str)).chain(announcing) {
        let has_row = page.lines().any(|line| {
            let first = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
            first.is_some_and(|words| words.split(", ").any(|one| one == format!("`{word}`")))
        });
        assert!(has_row, "{word} has no row");
    }
}
