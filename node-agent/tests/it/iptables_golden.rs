//! Golden tests of iptables mode. After the backend has programmed a network namespace, the output of the
//! iptables tools must equal the listings in the original requirements documents, line by line. The text that
//! the backend writes for a change must equal a golden file. `UPDATE_GOLDEN=1` rewrites the files.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{fs, path::Path};

use model::{
    kinds::{node::Naming, service::Protocol},
    primitives::net::IpFamily,
    program::{Masquerade, Program, Role, Route, Verdict, oracle::Networks},
};
use node_agent::dataplane::{
    Dataplane, DesiredState, Scope,
    iptables::{
        Flavour, IptablesBackend, IptablesOptions,
        layout::{NamingLayout, OffCluster},
        mirror::IptablesMirror,
        plan::{self, DesiredRules},
        render::{self, Context},
    },
};

use crate::support::{Namespace, programs::*};

fn layout(naming: Naming) -> NamingLayout {
    NamingLayout { naming, masquerade_mark: 0x4000, drop_mark: 0x8000, drop_invalid: true }
}

fn program_in(namespace: &Namespace, flavour: Flavour, desired: &DesiredState) {
    namespace.run(|| {
        let options = IptablesOptions { layout: layout(Naming::Kube), flavour: Some(flavour) };
        let mut backend = IptablesBackend::open(&options).unwrap();
        verified(&backend.apply(desired, &Scope::Everything));
    });
}

fn flavours() -> [(Flavour, &'static str); 2] {
    [(Flavour::Nft, "nft"), (Flavour::Legacy, "legacy")]
}

/// Builds the Service of requirements document 002: a cluster IP, a load balancer address and a node port,
/// with three endpoints.
fn nginx() -> DesiredState {
    let endpoints = [("10.244.1.2", 80, 1), ("10.244.2.4", 80, 1), ("10.244.3.4", 80, 1)];
    let mut program = program(
        &["10.98.154.163", "12.12.12.12"],
        &endpoints.map(|(ip, ..)| ip),
        &[
            (at("10.98.154.163", Protocol::Tcp, 80), forward(Masquerade::OffCluster, &endpoints)),
            (node_port(IpFamily::V4, Protocol::Tcp, 30938), forward(Masquerade::Always, &endpoints)),
        ],
    );
    let public = Route::new(Role::LoadBalancer, forward(Masquerade::Always, &endpoints));
    program.frontends.insert(at("12.12.12.12", Protocol::Tcp, 80), public);
    let mut desired = desired(vec![("nginx", program)]);
    desired.networks = outside_of("10.244.0.0/16");
    desired
}

/// Builds cluster networks that cause masquerading of connections from all sources outside of `network`.
fn outside_of(network: &str) -> Networks {
    let network: ipnet::IpNet = network.parse().unwrap();
    let halves = (1..=network.prefix_len()).map(|length| {
        let around = ipnet::IpNet::new(network.network(), length - 1).unwrap().trunc();
        let mut halves = around.subnets(length).unwrap();
        halves.find(|half| !half.contains(&network.network())).unwrap()
    });
    Networks {
        masquerade_sources: halves.collect(),
        workloads: [network].into_iter().collect(),
        ..Networks::default()
    }
}

const DOCUMENT_002: &str = r#"
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-SERVICES ! -s 10.244.0.0/16 -d 10.98.154.163/32 -p tcp -m comment --comment "default/nginx: cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SERVICES -d 10.98.154.163/32 -p tcp -m comment --comment "default/nginx: cluster IP" -m tcp --dport 80 -j KUBE-SVC-4N57TFCL4MD7ZTDA
-A KUBE-SERVICES -d 12.12.12.12/32 -p tcp -m comment --comment "default/nginx: loadbalancer IP" -m tcp --dport 80 -j KUBE-FW-4N57TFCL4MD7ZTDA
-A KUBE-FW-4N57TFCL4MD7ZTDA -m comment --comment "default/nginx: loadbalancer IP" -j KUBE-MARK-MASQ
-A KUBE-FW-4N57TFCL4MD7ZTDA -m comment --comment "default/nginx: loadbalancer IP" -j KUBE-SVC-4N57TFCL4MD7ZTDA
-A KUBE-FW-4N57TFCL4MD7ZTDA -m comment --comment "default/nginx: loadbalancer IP" -j KUBE-MARK-DROP
-A KUBE-NODEPORTS -p tcp -m comment --comment "default/nginx:" -m tcp --dport 30938 -j KUBE-MARK-MASQ
-A KUBE-NODEPORTS -p tcp -m comment --comment "default/nginx:" -m tcp --dport 30938 -j KUBE-SVC-4N57TFCL4MD7ZTDA
-A KUBE-SVC-4N57TFCL4MD7ZTDA -m comment --comment "default/nginx:" -m statistic --mode random --probability 0.33332999982 -j KUBE-SEP-UXHBWR5XIMVGXW3H
-A KUBE-SVC-4N57TFCL4MD7ZTDA -m comment --comment "default/nginx:" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-TOYRWPNILILHH3OR
-A KUBE-SVC-4N57TFCL4MD7ZTDA -m comment --comment "default/nginx:" -j KUBE-SEP-6QCC2MHJZP35QQAR
-A KUBE-SEP-6QCC2MHJZP35QQAR -s 10.244.3.4/32 -m comment --comment "default/nginx:" -j KUBE-MARK-MASQ
-A KUBE-SEP-6QCC2MHJZP35QQAR -p tcp -m comment --comment "default/nginx:" -m tcp -j DNAT --to-destination 10.244.3.4:80
-A KUBE-SEP-TOYRWPNILILHH3OR -s 10.244.2.4/32 -m comment --comment "default/nginx:" -j KUBE-MARK-MASQ
-A KUBE-SEP-TOYRWPNILILHH3OR -p tcp -m comment --comment "default/nginx:" -m tcp -j DNAT --to-destination 10.244.2.4:80
-A KUBE-SEP-UXHBWR5XIMVGXW3H -s 10.244.1.2/32 -m comment --comment "default/nginx:" -j KUBE-MARK-MASQ
-A KUBE-SEP-UXHBWR5XIMVGXW3H -p tcp -m comment --comment "default/nginx:" -m tcp -j DNAT --to-destination 10.244.1.2:80
"#;

#[test]
fn f088_f089_f090_f091_f092_f095_f096_f097_f098_f102_the_rules_of_document_002_are_printed_line_by_line() {
    for (flavour, word) in flavours() {
        let namespace = Namespace::new(&format!("gold2-{word}"));
        program_in(&namespace, flavour, &nginx());
        let saved = namespace.exec(&[&format!("iptables-{word}-save"), "-t", "nat"]);
        let printed: Vec<_> = saved.lines().collect();
        for line in DOCUMENT_002.lines().filter(|line| !line.is_empty()) {
            assert!(printed.contains(&line), "{word}: {line}\nis not in\n{saved}");
        }
        // The order within each chain equals that of the document, and complete chains of the document are
        // complete.
        for chain in
            ["SVC-4N57TFCL4MD7ZTDA", "FW-4N57TFCL4MD7ZTDA", "SEP-6QCC2MHJZP35QQAR", "NODEPORTS", "MARK-DROP"]
        {
            let of_chain = |line: &&str| line.starts_with(&format!("-A KUBE-{chain} "));
            let wanted: Vec<_> = DOCUMENT_002.lines().filter(of_chain).collect();
            let found: Vec<_> = printed.iter().copied().filter(|line| of_chain(line)).collect();
            assert_eq!(found, wanted, "{word}: {chain}");
        }
        let services: Vec<_> =
            printed.iter().copied().filter(|line| line.starts_with("-A KUBE-SERVICES ")).collect();
        let wanted: Vec<_> =
            DOCUMENT_002.lines().filter(|line| line.starts_with("-A KUBE-SERVICES ")).collect();
        assert_eq!(services[..3], wanted, "{word}: {services:#?}");
        assert!(
            services[services.len() - 1].ends_with("--dst-type LOCAL -j KUBE-NODEPORTS"),
            "{services:#?}"
        );
    }
}

#[test]
fn f099_without_a_local_endpoint_the_chain_of_document_002_drops() {
    let endpoints = [("10.244.1.2", 80, 1)];
    let mut desired = desired(vec![]);
    let mut program = program(&[], &[], &[]);
    let mut public = Route::new(Role::LoadBalancer, forward(Masquerade::Never, &endpoints));
    public.from_elsewhere = Verdict::Drop;
    program.frontends.insert(at("12.12.12.12", Protocol::Tcp, 80), public);
    set(&mut desired, "nginx", program);
    for (flavour, word) in flavours() {
        let namespace = Namespace::new(&format!("gold2x-{word}"));
        program_in(&namespace, flavour, &desired);
        let saved = namespace.exec(&[&format!("iptables-{word}-save"), "-t", "nat"]);
        let line = "-A KUBE-XLB-4N57TFCL4MD7ZTDA -m comment --comment \"default/nginx: has no local endpoints\" -j KUBE-MARK-DROP";
        assert!(saved.lines().any(|printed| printed == line), "{saved}");
    }
}

/// Builds the Service of requirements document 003, with or without its node port.
fn nginx_service(with_node_port: bool) -> DesiredState {
    let endpoints = [("10.1.13.2", 80, 1), ("10.1.13.3", 80, 1), ("10.1.13.4", 80, 1)];
    let mut frontends =
        vec![(at("10.0.0.252", Protocol::Tcp, 8000), forward(Masquerade::OffCluster, &endpoints))];
    if with_node_port {
        let node_port = node_port(IpFamily::V4, Protocol::Tcp, 30802);
        frontends.push((node_port, forward(Masquerade::Always, &endpoints)));
    }
    desired(vec![("nginx-service", program(&["10.0.0.252"], &endpoints.map(|(ip, ..)| ip), &frontends))])
}

const DOCUMENT_003: &str = "
Chain PREROUTING (policy ACCEPT 0 packets, 0 bytes)
 pkts bytes target     prot opt in     out     source               destination
   37  2766 KUBE-SERVICES  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* kubernetes service portals */
   33  2112 DOCKER     all  --  *      *       0.0.0.0/0            0.0.0.0/0            ADDRTYPE match dst-type LOCAL

Chain KUBE-SERVICES (2 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 KUBE-SVC-GKN7Y2BSGW4NJTYL  tcp  --  *      *       0.0.0.0/0            10.0.0.252           /* default/nginx-service: cluster IP */ tcp dpt:8000
   18  1080 KUBE-NODEPORTS  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* kubernetes service nodeports; NOTE: this must be the last rule in this chain */ ADDRTYPE match dst-type LOCAL

Chain KUBE-SVC-GKN7Y2BSGW4NJTYL (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 KUBE-SEP-7ROBBXFV7SD4AIRW  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/nginx-service: */ statistic mode random probability 0.33332999982
    0     0 KUBE-SEP-XY3F6VJIZ7ELIF4Z  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/nginx-service: */ statistic mode random probability 0.50000000000
    0     0 KUBE-SEP-JIDZHFC4A3T535AK  all  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/nginx-service: */

Chain KUBE-SEP-7ROBBXFV7SD4AIRW (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 KUBE-MARK-MASQ  all  --  *      *       10.1.13.2            0.0.0.0/0            /* default/nginx-service: */
    0     0 DNAT       tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/nginx-service: */ tcp to:10.1.13.2:80
";

const DOCUMENT_003_NODE_PORT: &str = "
Chain KUBE-NODEPORTS (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 KUBE-MARK-MASQ  tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/nginx-service: */ tcp dpt:30802
    0     0 KUBE-SVC-GKN7Y2BSGW4NJTYL  tcp  --  *      *       0.0.0.0/0            0.0.0.0/0            /* default/nginx-service: */ tcp dpt:30802
";

/// Splits a listing into the lines of each chain, without packet counters. Protocol numbers, which the
/// current tool prints, are converted to names.
fn chains(listing: &str) -> Vec<Vec<String>> {
    let words = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_rule = words.first().is_some_and(|word| word.chars().all(char::is_numeric));
        let words = if is_rule { &words[2..] } else { &words[..] };
        let mut words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        if is_rule {
            words[1] = match words[1].as_str() {
                "0" => "all".to_owned(),
                "6" => "tcp".to_owned(),
                other => other.to_owned(),
            };
        } else if words.get(2).is_some_and(|word| word == "(policy") {
            words.truncate(4);
        }
        words.join(" ")
    };
    let chains = listing.trim().split("\n\n").map(|chain| chain.lines().map(words).collect());
    chains.collect()
}

#[test]
fn f080_f093_f094_f098_f100_f102_the_listing_of_document_003_is_printed_chain_by_chain() {
    for (flavour, word) in flavours() {
        let namespace = Namespace::new(&format!("gold3-{word}"));
        let tool = format!("iptables-{word}");
        // Docker was started first.
        namespace.exec(&[&tool, "-t", "nat", "-N", "DOCKER"]);
        let docker = ["-m", "addrtype", "--dst-type", "LOCAL", "-j", "DOCKER"];
        namespace.exec(&[&[tool.as_str(), "-t", "nat", "-A", "PREROUTING"], &docker[..]].concat());
        for (document, with_node_port) in [(DOCUMENT_003, false), (DOCUMENT_003_NODE_PORT, true)] {
            program_in(&namespace, flavour, &nginx_service(with_node_port));
            let listing = namespace.exec(&[&tool, "-L", "-v", "-n", "-t", "nat"]);
            let printed = chains(&listing);
            for wanted in chains(document) {
                let found =
                    printed.iter().find(|chain| chain[0].split(' ').nth(1) == wanted[0].split(' ').nth(1));
                let mut found =
                    found.unwrap_or_else(|| panic!("{word}: no {} in\n{listing}", wanted[0])).clone();
                if wanted[0].contains("KUBE-SERVICES") {
                    // The document shows only the first and last rule of this one.
                    let last = found.pop().unwrap();
                    found.truncate(wanted.len() - 1);
                    found.push(last);
                }
                assert_eq!(found, wanted, "{word}\n{listing}");
            }
        }
    }
}

fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, wanted, "{name} differs; UPDATE_GOLDEN=1 accepts it");
}

fn web(list: &[(&str, u16, u16)]) -> Program {
    program(
        &["10.96.0.1"],
        &[list[0].0],
        &[
            (at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, list)),
            (at("203.0.113.7", Protocol::Tcp, 80), forward(Masquerade::Always, list)),
            (node_port(IpFamily::V4, Protocol::Tcp, 30080), forward(Masquerade::Always, list)),
        ],
    )
}

fn wanted(program: &Program, before: Option<&Program>) -> DesiredRules {
    let context = Context {
        layout: layout(Naming::Tidegate),
        family: IpFamily::V4,
        workloads: vec!["10.1.0.0/16".parse().unwrap()],
        off_cluster: OffCluster::OutsideOf("10.1.0.0/16".parse().unwrap()),
    };
    let render = |program| render::service(&context, &key("web"), program, |_| true);
    let mut wanted = DesiredRules::default();
    let before = before.map(render).unwrap_or_default();
    wanted.chains.extend(before.chains.into_keys().map(|chain| (chain, None)));
    let rendered = render(program);
    wanted.chains.extend(rendered.chains.into_iter().map(|(chain, rules)| (chain, Some(rules))));
    for (frontend, places) in rendered.lines {
        for (number, (chain, lines)) in places.into_iter().enumerate() {
            wanted.lines.insert((chain, format!("{frontend:?} {number}")), lines);
        }
    }
    wanted
}

#[test]
fn changes_write_only_the_chains_that_differ() {
    let networks = outside_of("10.1.0.0/16");
    let fixed = layout(Naming::Tidegate).fixed(IpFamily::V4, &networks);
    let before = web(&[("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)]);
    let first = wanted(&before, None);
    let mut mirror = IptablesMirror::default();
    let mut text = format!("# the first pass\n{}", plan::plan(&mirror, &fixed, &first));
    plan::absorb(&mut mirror, &fixed, &first);
    assert!(plan::plan(&mirror, &fixed, &first).is_empty());
    for (title, after) in [
        ("one endpoint replaced", web(&[("10.1.1.2", 8080, 1), ("10.1.3.2", 8080, 1)])),
        ("a weight doubled", web(&[("10.1.1.2", 8080, 2), ("10.1.2.2", 8080, 1)])),
        ("another virtual address", {
            let mut program = before.clone();
            let route = program.frontends.values().next().unwrap().clone();
            program.frontends.insert(at("10.96.0.2", Protocol::Tcp, 80), route);
            program
        }),
    ] {
        let script = plan::plan(&mirror, &fixed, &wanted(&after, Some(&before)));
        text += &format!("# {title}\n{script}");
    }
    check("iptables-changes.txt", &text);
}
