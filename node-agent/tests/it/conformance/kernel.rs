//! Conformance scenarios with other programs that use the same kernel: if they damage kernel objects of the
//! backend, the backend repairs them; their own kernel objects are not changed.

use std::{
    thread,
    time::{Duration, Instant},
};

use model::{primitives::net::IpFamily, wire::report::FailureReason};
use node_agent::dataplane::{Outcome, Scope};

use super::scenario::{Scenario, scenario};
use crate::testbed::{
    Bench, Lane,
    Spot::{A, B, C, Client, D, Node},
    node::{
        BOTH,
        Claim::{Mask, Reach},
        TCP, verified,
    },
};

pub const SCENARIOS: &[Scenario] = &[
    scenario("One Service that cannot be carried out fails alone", "F075", bad_service),
    scenario("What a stranger flushes is noticed and repaired", "F078", flushed).stands_for("N22"),
    scenario("One deleted rule is noticed and repaired", "F078", one_deleted).stands_for("N22"),
    scenario("What belongs to others stays as it is, through change, repair and cleanup", "F079", foreign),
    scenario("A cleanup leaves the kernel as it was before", "F079", cleanup),
    scenario("A fresh process cleans up what another one left", "F079", cleanup_by_another),
];

fn bad_service(b: &mut Bench) {
    let good = b.service("good", 1).both(80, &[A, B]);
    let bad = b.service("bad", 2).tcp(80, &[A]).scheduler("no-such");
    let also_good = b.service("later", 3).both(80, &[C]);
    let pass = b.try_set(&[&good, &bad, &also_good]);
    assert!(
        matches!(
            pass.outcomes.get(&bad.key()),
            Some(Outcome::Failed { reason: FailureReason::Unsupported, message }) if message.contains("no-such")
        ),
        "the reason names the scheduler: {pass:?}"
    );
    for key in [good.key(), also_good.key()] {
        assert_eq!(pass.outcomes.get(&key), Some(&Outcome::Verified));
    }
    b.desired.programs.remove(&bad.key());
    b.expect(&[Client, Node, D], BOTH, b.vip(1), 80, Reach(&[A, B]));
    b.expect(&[Client, Node, D], BOTH, b.vip(3), 80, Reach(&[C]));
    let mended = b.service("bad", 2).tcp(80, &[A]);
    b.set(&[&mended]);
    b.expect(&[Client, Node, D], TCP, b.vip(2), 80, Reach(&[A]));
}

fn flushed(b: &mut Bench) {
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, B]).node_port(30080);
    b.set(&[&web]);
    for command in flushes(b) {
        b.hosts.at(Node).exec(&command.split(' ').collect::<Vec<_>>());
        repair(b, &command);
        b.expect(&[Client, Node, D], BOTH, b.vip(1), 80, Reach(&[A, B]));
        b.expect(&[Client], BOTH, b.outer(1), 80, Mask(&[A, B]));
    }
}

/// Returns the shell commands that flush all rules of the proxy mode under test, as another program might.
fn flushes(b: &Bench) -> Vec<String> {
    let tool = iptables(b);
    let tables = [format!("{tool} -t nat -F"), format!("{tool} -t filter -F")];
    match b.lane {
        Lane::Nftables | Lane::Userspace => vec!["nft flush ruleset".to_owned()],
        Lane::Iptables | Lane::IptablesLegacy => tables.into(),
        Lane::Ipvs => {
            let mut all = vec!["ipvsadm -C".to_owned(), "ipset flush".to_owned()];
            all.extend(tables);
            all
        }
    }
}

/// Repairs the kernel state as the agent does, once the backend has detected a change by another program.
/// Panics if the backend does not detect the change within five seconds.
fn repair(b: &mut Bench, what: &str) {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let (backend, node) = (&mut b.backend, b.hosts.at(Node));
        if node.run(|| backend.is_disturbed()).unwrap() {
            node.run(|| backend.observe()).unwrap();
            let writes = verified(&b.apply(&Scope::Everything));
            if writes > 0 {
                return;
            }
        }
        assert!(Instant::now() < end, "nobody noticed: {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn one_deleted(b: &mut Bench) {
    let web = b.service("web", 1).both(80, &[A, B]);
    b.set(&[&web]);
    let command = deletion(b);
    b.hosts.at(Node).exec(&command.split_whitespace().collect::<Vec<_>>());
    repair(b, &command);
    b.expect(&[Client, Node, D], BOTH, b.vip(1), 80, Reach(&[A, B]));
}

/// Returns a shell command that deletes one kernel object of the backend under test.
fn deletion(b: &Bench) -> String {
    let node = b.hosts.at(Node);
    match b.lane {
        Lane::Nftables | Lane::Userspace => {
            let tables = node.exec(&["nft", "list", "tables"]);
            let table = tables.lines().find(|line| line.contains("tidegate")).unwrap();
            let table = table.split(' ').next_back().unwrap();
            let listing = node.exec(&["nft", "-a", "list", "table", "inet", table]);
            let mut chain = "";
            for line in listing.lines().map(str::trim) {
                if let Some(rest) = line.strip_prefix("chain ") {
                    chain = rest.split(' ').next().unwrap();
                }
                if let Some((rule, handle)) = line.split_once(" # handle ")
                    && rule.contains("vmap")
                {
                    return format!("nft delete rule inet {table} {chain} handle {handle}");
                }
            }
            panic!("no rule to delete in {listing}");
        }
        Lane::Iptables | Lane::IptablesLegacy => {
            let tool = iptables(b);
            let rules = node.exec(&[tool, "-t", "nat", "-S"]);
            let vip = b.vip(1).to_string();
            let is_ours = |line: &&str| line.starts_with("-A") && line.contains(&vip) && !line.contains('"');
            let named = rules.lines().find(is_ours);
            match named {
                Some(rule) => format!("{tool} -t nat {}", rule.replacen("-A", "-D", 1)),
                None => {
                    // Comments with spaces cannot be split, so the rule is deleted by number.
                    let rule =
                        rules.lines().find(|line| line.starts_with("-A") && line.contains(&vip)).unwrap();
                    let chain = rule.split(' ').nth(1).unwrap();
                    let prefix = format!("-A {chain} ");
                    let in_chain: Vec<_> = rules.lines().filter(|line| line.starts_with(&prefix)).collect();
                    let number = in_chain.iter().position(|line| *line == rule).unwrap() + 1;
                    format!("{tool} -t nat -D {chain} {number}")
                }
            }
        }
        Lane::Ipvs => {
            let at = if b.family == IpFamily::V4 {
                format!("{}:80", b.vip(1))
            } else {
                format!("[{}]:80", b.vip(1))
            };
            format!("ipvsadm -D -t {at}")
        }
    }
}

fn foreign(b: &mut Bench) {
    let node = b.hosts.at(Node);
    let (make, look, unmake) = strangers(b);
    for command in &make {
        node.exec(&command.split(' ').collect::<Vec<_>>());
    }
    let theirs = |b: &Bench| -> String {
        look.iter().map(|command| b.hosts.at(Node).exec(&command.split(' ').collect::<Vec<_>>())).collect()
    };
    let before = theirs(b);
    assert!(before.contains("9999"), "{before}");
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, B]).node_port(30080);
    b.set(&[&web]);
    assert_eq!(theirs(b), before, "programming");
    b.set(&[&b.service("web", 1).both(80, &[C])]);
    assert_eq!(theirs(b), before, "a change");
    let command = deletion(b);
    b.hosts.at(Node).exec(&command.split_whitespace().collect::<Vec<_>>());
    repair(b, &command);
    assert_eq!(theirs(b), before, "a repair");
    let (backend, node) = (&mut b.backend, b.hosts.at(Node));
    node.run(|| backend.cleanup()).unwrap();
    assert_eq!(theirs(b), before, "a cleanup");
    for command in &unmake {
        b.hosts.at(Node).exec(&command.split(' ').collect::<Vec<_>>());
    }
    b.restart();
}

/// Returns three lists of shell commands, which create, list and remove kernel objects that belong to another
/// program.
fn strangers(b: &Bench) -> (Vec<String>, Vec<String>, Vec<String>) {
    let tool = iptables(b);
    let mut make = Vec::new();
    let mut look = Vec::new();
    let mut unmake = Vec::new();
    for table in ["nat", "filter"] {
        let hook = if table == "nat" { "PREROUTING" } else { "FORWARD" };
        let rule = format!("{hook} -p tcp --dport 9999 -j FOREIGN");
        make.push(format!("{tool} -t {table} -N FOREIGN"));
        make.push(format!("{tool} -t {table} -A FOREIGN -p tcp --dport 9999 -j RETURN"));
        make.push(format!("{tool} -t {table} -A {rule}"));
        look.push(format!("{tool} -t {table} -S FOREIGN"));
        unmake.push(format!("{tool} -t {table} -D {rule}"));
        unmake.push(format!("{tool} -t {table} -F FOREIGN"));
        unmake.push(format!("{tool} -t {table} -X FOREIGN"));
    }
    match b.lane {
        Lane::Nftables | Lane::Iptables | Lane::Userspace => {
            make.push("nft add table inet foreign".to_owned());
            make.push(
                "nft add set inet foreign ports { type inet_service ; elements = { 9999 } ; }".to_owned(),
            );
            look.push("nft -s list table inet foreign".to_owned());
            unmake.push("nft delete table inet foreign".to_owned());
        }
        Lane::IptablesLegacy => {}
        Lane::Ipvs => {
            make.push("ipset create foreign bitmap:port range 9990-9999".to_owned());
            make.push("ipset add foreign 9999".to_owned());
            look.push("ipset save foreign".to_owned());
            unmake.push("ipset destroy foreign".to_owned());
            let at = if b.family == IpFamily::V4 { "10.99.99.99:9999" } else { "[fd99::99]:9999" };
            make.push(format!("ipvsadm -A -t {at} -s rr"));
            unmake.push(format!("ipvsadm -D -t {at}"));
        }
    }
    (make, look, unmake)
}

fn cleanup(b: &mut Bench) {
    use_tools(b);
    clean(b);
    let before = kernel(b);
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, B]).node_port(30080);
    let local =
        b.service("local", 2).load_balancer_ip(b.outer(2)).tcp(80, &[A, D]).external_local().affinity(60);
    let open = b.service("ranges", 3).load_balancer_ip(b.outer(3)).tcp(80, &[A]);
    let ranges = open.sources(&["192.0.2.0/24", "2001:db8::/64"]);
    b.restart();
    b.set(&[&web, &local, &ranges]);
    assert_ne!(kernel(b), before, "there is something to clean up");
    clean(b);
    assert_eq!(kernel(b), before, "a cleanup leaves nothing");
    b.restart();
    b.expect(&[Client, Node], BOTH, b.vip(1), 80, Reach(&[A, B]));
}

fn cleanup_by_another(b: &mut Bench) {
    use_tools(b);
    clean(b);
    let before = kernel(b);
    b.restart();
    let web = b.service("web", 1).external_ip(b.outer(1)).both(80, &[A, B]).node_port(30080);
    b.set(&[&web]);
    let (lane, home) = (b.lane, &b.home);
    b.hosts.at(Node).run(|| {
        let mut other = crate::testbed::node::open(lane, home).unwrap();
        other.cleanup().unwrap();
    });
    assert_eq!(kernel(b), before, "a cleanup leaves nothing");
    b.restart();
    b.expect(&[Client, Node], BOTH, b.vip(1), 80, Reach(&[A, B]));
}

/// Creates and removes a Service, so that objects that kernel tools create at their first use, such as empty
/// built-in tables, exist before the test compares kernel states.
fn use_tools(b: &mut Bench) {
    let web = b.service("first", 9).both(80, &[A]).node_port(30099);
    b.set(&[&web]);
    b.remove(&web);
}

fn clean(b: &mut Bench) {
    let (backend, node) = (&mut b.backend, b.hosts.at(Node));
    node.run(|| backend.cleanup()).unwrap();
}

/// Returns the kernel state that the proxy mode under test may change, without counters and times.
fn kernel(b: &Bench) -> String {
    let mut commands = vec!["ip -o addr", "ip -o link"];
    commands.extend(match b.lane {
        Lane::Nftables | Lane::Iptables | Lane::Userspace => vec!["nft -s list ruleset"],
        Lane::IptablesLegacy => vec!["iptables-legacy-save", "ip6tables-legacy-save"],
        Lane::Ipvs => vec![
            "iptables-legacy-save",
            "ip6tables-legacy-save",
            "ipset save",
            "ipvsadm -Sn",
            "sysctl -e net.ipv4.vs net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce net.ipv4.ip_forward",
        ],
    });
    let text = |command: &&str| b.hosts.at(Node).exec(&command.split(' ').collect::<Vec<_>>());
    let text: String = commands.iter().map(text).collect();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap().to_owned() + "\n").collect()
}

fn iptables(b: &Bench) -> &'static str {
    match (b.lane.in_guest(), b.family) {
        (false, IpFamily::V4) => "iptables",
        (false, IpFamily::V6) => "ip6tables",
        (true, IpFamily::V4) => "iptables-legacy",
        (true, IpFamily::V6) => "ip6tables-legacy",
    }
}
