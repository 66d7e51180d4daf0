//! Tests that rules listed by real tools yield the expected results of the checks.

use std::collections::BTreeSet;

use dataplane::{BackendOptions, iptables::Flavour};
use model::{
    kinds::node::{Naming, ProxyMode},
    wire::doctor::{Finding, FindingState, SafeFix},
};

use super::judge;
use crate::doctor::{
    Subject,
    chains::{Chain, Family, Hook, TableLocation, TableTool},
    checks::Check,
    iptables,
    parse::{Link, RoutingRule},
    resolver,
    seen::{Holder, MachineFacts},
};

fn subject(mode: ProxyMode, naming: Naming) -> Subject {
    Subject { mode, options: BackendOptions { naming, ..BackendOptions::default() } }
}

fn of(mode: ProxyMode, check: Check, seen: &MachineFacts) -> Vec<Finding> {
    let found = judge(&subject(mode, Naming::Tidegate), seen);
    found.into_iter().filter(|finding| finding.check == check.as_str()).collect()
}

/// Returns the states of all results of one check for these machine data.
fn states(mode: ProxyMode, check: Check, seen: &MachineFacts) -> Vec<FindingState> {
    of(mode, check, seen).into_iter().map(|finding| finding.state).collect()
}

const FINE: [FindingState; 1] = [FindingState::Fine];
const WARNING: [FindingState; 1] = [FindingState::Warning];

fn saved(flavour: Flavour, text: &str) -> MachineFacts {
    MachineFacts { chains: iptables::chains(flavour, Family::Ip, text), ..MachineFacts::default() }
}

fn table(name: &str, chain: &str) -> Chain {
    Chain {
        place: TableLocation { keeper: TableTool::Nft, family: Family::Ip, table: name.to_owned() },
        name: chain.to_owned(),
        hook: None,
        priority: 0,
        drops: false,
        rules_total: 1,
        rules: Vec::new(),
    }
}

/// Rules created by Docker 28, in the format of iptables-save 1.8.9.
const DOCKER: &str = "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
    -A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP\nCOMMIT\n\
    *filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:DOCKER - [0:0]\n:DOCKER-BRIDGE - [0:0]\n\
    :DOCKER-CT - [0:0]\n:DOCKER-FORWARD - [0:0]\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-FORWARD\n\
    -A DOCKER ! -i docker0 -o docker0 -j DROP\n-A DOCKER-BRIDGE -o docker0 -j DOCKER\n\
    -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A DOCKER-FORWARD -j DOCKER-CT\n\
    -A DOCKER-FORWARD -j DOCKER-BRIDGE\n-A DOCKER-FORWARD -i docker0 -j ACCEPT\nCOMMIT\n";

#[test]
fn docker_drops_what_is_forwarded_until_its_user_chain_lets_it_pass() {
    let seen = saved(Flavour::Nft, DOCKER);
    let found = of(ProxyMode::Nftables, Check::ForwardDrop, &seen);
    let fix = "iptables-nft -I DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT";
    assert_eq!(found[0].fix.as_deref(), Some(fix));
    assert!(found[0].message.contains("its policy is to drop"), "{}", found[0].message);
    assert_eq!(states(ProxyMode::Nftables, Check::DockerDirectAccess, &seen), WARNING);
    assert_eq!(states(ProxyMode::Userspace, Check::ForwardDrop, &seen), FINE);

    let rule = fix.strip_prefix("iptables-nft -I ").unwrap();
    let passes = saved(Flavour::Nft, &DOCKER.replace("-A DOCKER ! ", &format!("-A {rule}\n-A DOCKER ! ")));
    assert_eq!(states(ProxyMode::Nftables, Check::ForwardDrop, &passes), FINE);
    assert_eq!(states(ProxyMode::Ipvs, Check::ForwardDrop, &passes), WARNING, "answers are not translated");
}

/// Rules are evaluated in order: an earlier accept prevents a drop, a return ends its chain, jumps are
/// followed, and a loop of jumps does not make the evaluation endless.
#[test]
fn rules_are_followed_in_their_order_and_no_loop_holds_up() {
    let state = |rules: &str| {
        let text = format!("*filter\n:FORWARD ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n{rules}COMMIT\n");
        states(ProxyMode::Iptables, Check::ForwardDrop, &saved(Flavour::Legacy, &text)).remove(0)
    };
    assert_eq!(state("-A FORWARD -i br0 -j DROP\n"), FindingState::Fine, "somebody else's packets");
    assert_eq!(state("-A FORWARD -j REJECT --reject-with icmp-port-unreachable\n"), FindingState::Warning);
    assert_eq!(state("-A FORWARD -j ACCEPT\n-A FORWARD -j DROP\n"), FindingState::Fine);
    assert_eq!(
        state("-A FORWARD -j A\n-A A -j RETURN\n-A A -j ACCEPT\n-A FORWARD -j DROP\n"),
        FindingState::Warning
    );
    assert_eq!(state("-A FORWARD -j A\n-A A -g B\n-A B -j DROP\n"), FindingState::Warning);
    assert_eq!(state("-A FORWARD -j A\n-A A -j B\n-A A -j B\n-A B -j A\n-A B -j A\n"), FindingState::Fine);
    let new = "-A FORWARD -m conntrack --ctstate NEW -j ACCEPT\n-A FORWARD -j DROP\n";
    assert_eq!(state(new), FindingState::Warning);
    assert_eq!(
        state("-A FORWARD -m conntrack ! --ctstate DNAT -j ACCEPT\n-A FORWARD -j DROP\n"),
        FindingState::Warning
    );
}

#[test]
fn what_comes_in_matters_in_the_modes_in_which_it_does() {
    let seen = saved(Flavour::Nft, "*filter\n:INPUT DROP [0:0]\nCOMMIT\n");
    assert_eq!(states(ProxyMode::Nftables, Check::InputDrop, &seen), []);
    for mode in [ProxyMode::Userspace, ProxyMode::Ipvs] {
        assert_eq!(states(mode, Check::InputDrop, &seen), WARNING);
    }
}

#[test]
fn two_flavours_are_told_when_both_have_rules() {
    let rule = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j ACCEPT\nCOMMIT\n";
    let mut seen = saved(Flavour::Nft, rule);
    assert_eq!(states(ProxyMode::Nftables, Check::IptablesFlavours, &seen), FINE);
    seen.chains.extend(iptables::chains(
        Flavour::Legacy,
        Family::Ip6,
        "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n",
    ));
    assert_eq!(states(ProxyMode::Nftables, Check::IptablesFlavours, &seen), FINE, "the table is empty");
    seen.chains.extend(iptables::chains(Flavour::Legacy, Family::Ip6, rule));
    assert_eq!(states(ProxyMode::Nftables, Check::IptablesFlavours, &seen), WARNING);
}

#[test]
fn what_kube_proxy_left_is_told_but_not_our_own_chains_of_its_names() {
    let chains = saved(Flavour::Nft, "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\nCOMMIT\n");
    assert_eq!(states(ProxyMode::Iptables, Check::KubeProxy, &chains), WARNING);
    let own = judge(&subject(ProxyMode::Iptables, Naming::Kube), &chains);
    let state = |findings: &[Finding]| {
        findings
            .iter()
            .find(|finding| finding.check == Check::KubeProxy.as_str())
            .map(|finding| finding.state)
    };
    assert_eq!(state(&own), Some(FindingState::Fine));
    let kubelet =
        saved(Flavour::Nft, "*filter\n:KUBE-FIREWALL - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n");
    assert_eq!(states(ProxyMode::Iptables, Check::KubeProxy, &kubelet), FINE);

    let nftables = MachineFacts { chains: vec![table("kube-proxy", "services")], ..MachineFacts::default() };
    let found = of(ProxyMode::Nftables, Check::KubeProxy, &nftables);
    assert_eq!(found[0].fix.as_deref(), Some("nft delete table ip kube-proxy"));
    let link = Link { name: "kube-ipvs0".to_owned(), mtu: 1500, kind: "dummy".to_owned() };
    let ipvs = MachineFacts { links: vec![link], ..MachineFacts::default() };
    assert_eq!(states(ProxyMode::Nftables, Check::KubeProxy, &ipvs), WARNING);
    let process = Holder { program: "kube-proxy".to_owned(), process: Some(7), does: String::new() };
    let runs = MachineFacts { holders: vec![process], ..MachineFacts::default() };
    assert_eq!(states(ProxyMode::Nftables, Check::KubeProxy, &runs), [FindingState::Broken]);
}

/// F133: a network plugin is named with an object of it. A machine with a block of a WorkloadNetwork causes a warning.
#[test]
fn f133_network_plugins_are_named_and_a_second_network_has_a_remedy() {
    let with = |names: &[&str]| {
        let link = |name: &&str| Link { name: (*name).to_owned(), mtu: 1450, kind: String::new() };
        MachineFacts { links: names.iter().map(link).collect(), ..MachineFacts::default() }
    };
    let found = |mode, seen: &MachineFacts| of(mode, Check::ForeignNetwork, seen).remove(0);
    for (names, message) in [
        (&["cni0", "flannel.1"][..], "flannel attaches workloads here (interface flannel.1)"),
        (&["cali12d4a061371"], "Calico attaches workloads here (interface cali12d4a061371)"),
        (
            &["cali12d4a061371", "flannel.1"],
            "Canal (flannel with Calico's policy) attaches workloads here (interface flannel.1, interface cali12d4a061371)",
        ),
        (&["lxc0", "cilium_host"], "Cilium attaches workloads here (interface cilium_host)"),
        (&["ovn0"], "Kube-OVN attaches workloads here (interface ovn0)"),
        (&["kube-bridge"], "kube-router attaches workloads here (interface kube-bridge)"),
        (
            &["calico-web", "flannel.x", "cni0", "lxc0", "tg-vx"],
            "no network plugin of Kubernetes attaches workloads here",
        ),
    ] {
        let seen = with(names);
        assert_eq!(found(ProxyMode::Nftables, &seen).message, message);
        assert_eq!(states(ProxyMode::Nftables, Check::ForeignNetwork, &seen), FINE, "{names:?}");
    }
    let calico = MachineFacts { chains: vec![table("calico", "filter-FORWARD")], ..with(&[]) };
    assert!(found(ProxyMode::Nftables, &calico).message.contains("table ip calico, chain filter-FORWARD"));
    let workload = with(&["cilium_host", "tgabcdefghij2"]);
    let block =
        MachineFacts { chains: vec![table(network::filter::TABLE, "outgoing")], ..with(&["cilium_host"]) };
    for seen in [workload, block] {
        let fix = found(ProxyMode::Userspace, &seen).fix.unwrap();
        assert!(fix.contains("spec.nodeSelectors"), "{fix}");
    }
}

/// F131: chains of kube-router are no traces of kube-proxy. If both have chains, no command removes both.
#[test]
fn f131_chains_of_kube_router_are_not_taken_for_those_of_kube_proxy() {
    let rules = "*filter\n:FORWARD ACCEPT [0:0]\n:KUBE-ROUTER-FORWARD - [0:0]\n:KUBE-POD-FW-A - [0:0]\n:KUBE-NWPLCY-COMMON - [0:0]\n";
    let seen = saved(Flavour::Legacy, &format!("{rules}COMMIT\n"));
    assert_eq!(states(ProxyMode::Iptables, Check::KubeProxy, &seen), FINE);
    let named = of(ProxyMode::Iptables, Check::ForeignNetwork, &seen).remove(0);
    let place = "kube-router attaches workloads here (iptables-legacy table filter, chain KUBE-";
    assert!(named.message.starts_with(place), "{}", named.message);
    let both = saved(Flavour::Legacy, &format!("{rules}:KUBE-SERVICES - [0:0]\nCOMMIT\n"));
    let found = of(ProxyMode::Iptables, Check::KubeProxy, &both);
    assert_eq!(found[0].fix.as_deref(), Some("kube-proxy --cleanup"));
}

/// Rules that use the agent's mark bits (0x4000, and 0x8000 in modes that use it) cause a warning; rules that
/// use other bits do not.
#[test]
fn rules_about_our_bits_are_told_and_about_others_not() {
    let state = |mode, chain: &str, rule: &str| {
        let text = format!("*mangle\n:{chain} ACCEPT [0:0]\n-A {chain} {rule}\nCOMMIT\n");
        states(mode, Check::MarkClash, &saved(Flavour::Nft, &text)).remove(0)
    };
    let nftables = |chain: &str, rule: &str| state(ProxyMode::Nftables, chain, rule);
    assert_eq!(nftables("PREROUTING", "-j MARK --set-xmark 0x4000/0x4000"), FindingState::Warning);
    assert_eq!(nftables("PREROUTING", "-j MARK --set-xmark 0x1/0xffffffff"), FindingState::Fine);
    assert_eq!(
        nftables("FORWARD", "-j MARK --set-xmark 0x1/0xffffffff"),
        FindingState::Warning,
        "clears ours"
    );
    assert_eq!(nftables("FORWARD", "-m mark ! --mark 0xc000/0xc000 -j ACCEPT"), FindingState::Warning);
    assert_eq!(nftables("FORWARD", "-m mark --mark 0x1 -j ACCEPT"), FindingState::Fine);
    assert_eq!(nftables("FORWARD", "-m connmark --mark 0x4000/0x4000 -j ACCEPT"), FindingState::Fine);
    assert_eq!(nftables("TG-X", "-j MARK --set-xmark 0x4000/0x4000"), FindingState::Fine, "it is ours");
    let drop = "-j MARK --set-xmark 0x8000/0x8000";
    assert_eq!(nftables("PREROUTING", drop), FindingState::Fine);
    assert_eq!(state(ProxyMode::Iptables, "PREROUTING", drop), FindingState::Warning);

    let routing = |mark, mask| {
        let rule = RoutingRule { family: Family::Ip, priority: 100, mark, mask };
        states(
            ProxyMode::Nftables,
            Check::MarkClash,
            &MachineFacts { routing_rules: vec![rule], ..MachineFacts::default() },
        )
    };
    // Mark of wg-quick, which is a port number.
    assert_eq!(routing(0xca6c, u32::MAX), WARNING);
    assert_eq!(routing(0x80000, 0xff0000), FINE);
}

#[test]
fn a_table_of_connections_that_fills_is_told_before_it_is_full() {
    let found = |count| {
        let seen = MachineFacts {
            conntrack_count: Some(count),
            conntrack_max: Some(1000),
            ..MachineFacts::default()
        };
        let found = of(ProxyMode::Nftables, Check::ConntrackSize, &seen).remove(0);
        (found.state, found.safe_fix)
    };
    assert_eq!(found(799), (FindingState::Fine, None));
    assert_eq!(found(800), (FindingState::Warning, Some(SafeFix::ConntrackMax)));
    assert_eq!(found(1000), (FindingState::Broken, Some(SafeFix::ConntrackMax)));
    let helper = |value| {
        let seen = MachineFacts { conntrack_helper: value, ..MachineFacts::default() };
        states(ProxyMode::Nftables, Check::ConntrackHelper, &seen)
    };
    assert_eq!((helper(None), helper(Some(0)), helper(Some(1))), (vec![], FINE.to_vec(), WARNING.to_vec()));
}

#[test]
fn networks_of_different_sizes_are_told_unless_segments_are_made_smaller() {
    let link = |name: &str, mtu, kind: &str| Link { name: name.to_owned(), mtu, kind: kind.to_owned() };
    let links = vec![
        link("lo", 65_536, ""),
        link("eth0", 1450, ""),
        link("docker0", 1500, "bridge"),
        link("tidegate-ipvs", 9000, "dummy"),
        link("veth1", 9000, "veth"),
    ];
    let names: BTreeSet<_> = ["lo", "eth0", "docker0", "tidegate-ipvs"].map(str::to_owned).into();
    let mut seen = MachineFacts { links, with_network: [names, BTreeSet::new()], ..MachineFacts::default() };
    let found = of(ProxyMode::Nftables, Check::Mtu, &seen).remove(0);
    assert_eq!(found.message, "packets of 1500 bytes that come by docker0 do not fit eth0 (1450 bytes)");
    assert_eq!(states(ProxyMode::Userspace, Check::Mtu, &seen), FINE);
    assert_eq!(states(ProxyMode::Nftables, Check::BridgeTraffic, &seen), WARNING);
    assert_eq!(states(ProxyMode::Userspace, Check::BridgeTraffic, &seen), FINE);
    seen.chains = vec![table(dataplane::policy::schema::TABLE, "forward")];
    let found = of(ProxyMode::Userspace, Check::BridgeTraffic, &seen).remove(0);
    assert!(found.message.ends_with("so network policy does not apply to them"), "{}", found.message);
    assert_eq!(states(ProxyMode::Nftables, Check::ForwardDrop, &seen), FINE);
    seen.bridge_calls = [Some(1), None];
    assert_eq!(states(ProxyMode::Nftables, Check::BridgeTraffic, &seen), FINE);
    let clamp = "*mangle\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\nCOMMIT\n";
    seen.chains = iptables::chains(Flavour::Nft, Family::Ip, clamp);
    assert_eq!(states(ProxyMode::Nftables, Check::Mtu, &seen), FINE);
}

#[test]
fn other_programs_firewalld_and_what_could_not_be_read_are_told() {
    let holder = Holder { program: "keepalived".to_owned(), process: Some(7), does: "announces".to_owned() };
    let mut firewalld = table("firewalld", "filter_FORWARD");
    firewalld.hook = Some(Hook::Forward);
    let seen = MachineFacts {
        holders: vec![holder],
        chains: vec![firewalld],
        unseen: vec!["rules of nf_tables: not permitted".to_owned()],
        arp: [Some(0), Some(0)],
        ..MachineFacts::default()
    };
    for check in [Check::OtherAnnouncer, Check::Firewalld, Check::Unseen] {
        assert_eq!(states(ProxyMode::Nftables, check, &seen), WARNING, "{check:?}");
        assert_eq!(states(ProxyMode::Nftables, check, &MachineFacts::default()), FINE, "{check:?}");
    }
    assert_eq!(states(ProxyMode::Ipvs, Check::ArpFlux, &seen), WARNING);
    assert_eq!(
        states(
            ProxyMode::Ipvs,
            Check::ArpFlux,
            &MachineFacts { arp: [Some(1), Some(2)], ..MachineFacts::default() }
        ),
        FINE
    );
    assert_eq!(states(ProxyMode::Nftables, Check::ArpFlux, &seen), []);
}

#[test]
fn whatever_is_not_well_says_why_it_matters_and_what_to_do() {
    let seen = saved(Flavour::Nft, DOCKER);
    for finding in judge(&subject(ProxyMode::Iptables, Naming::Tidegate), &seen) {
        let is_well = finding.state == FindingState::Fine;
        assert_eq!((finding.why.is_none(), finding.fix.is_none()), (is_well, is_well), "{finding:?}");
    }
}

/// Rules that translate connections to Services before the jump to our chains are found; those after it, and those for
/// other addresses, ports or local addresses, are not.
#[test]
fn rules_that_capture_traffic_of_services_are_found_in_iptables_mode() {
    const OURS: &str = "-A PREROUTING -j TG-SERVICES\n";
    let state = |before: &str, after: &str| {
        let text = format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:TG-SERVICES - [0:0]\n:TG-SVC-X - [0:0]\n:DOCKER - [0:0]\n:OWN - [0:0]\n{before}{OURS}{after}\
             -A TG-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j TG-SVC-X\nCOMMIT\n"
        );
        let chains = iptables::chains(Flavour::Nft, Family::Ip, &text);
        let served = crate::doctor::served::find(&chains).unwrap();
        assert_eq!(served.len(), 1, "{served:?}");
        let seen = MachineFacts { chains, served, ..MachineFacts::default() };
        states(ProxyMode::Iptables, Check::CapturedTraffic, &seen)
    };
    let capturing = "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.1.2:8080\n";
    assert_eq!(state(capturing, ""), WARNING);
    assert_eq!(state("", capturing), FINE);
    assert_eq!(state("-A PREROUTING -d 10.96.0.0/16 -j OWN\n-A OWN -j REDIRECT\n", ""), WARNING);
    for harmless in [
        "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A DOCKER ! -i docker0 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.17.0.2:80\n",
        "-A PREROUTING -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.1.2:8080\n",
        "-A PREROUTING -p udp -m udp --dport 80 -j REDIRECT --to-ports 53\n",
        "-A PREROUTING -p tcp -m tcp --dport 81 -j REDIRECT --to-ports 82\n",
        "-A PREROUTING -d 10.97.0.0/16 -j OWN\n-A OWN -j REDIRECT\n",
    ] {
        assert_eq!(state(harmless, ""), FINE, "{harmless}");
    }
}

/// Limits of resolvers, the cost of the search path and multicast names are found, and so is another DNS server.
#[test]
fn resolver_settings_that_break_or_slow_names_are_found() {
    let search = |settings: &str, sources: &str| {
        let resolver = Some(resolver::parse(settings, sources));
        of(ProxyMode::Nftables, Check::Resolver, &MachineFacts { resolver, ..MachineFacts::default() })
    };
    let cluster = "nameserver 10.96.0.53\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";
    let [fine] = &search(cluster, "hosts: files dns\n")[..] else { panic!() };
    assert_eq!(
        (fine.state, fine.message.as_str()),
        (FindingState::Fine, "an external name costs up to 8 questions")
    );
    let long: String = (0..7).map(|number| format!(" d{number}.example")).collect();
    for (settings, sources, text) in [
        (cluster.to_owned(), "hosts: files mdns4_minimal [NOTFOUND=return] dns", "resolved by multicast"),
        (cluster.replace("search ", "search example.com "), "", "costs up to 10 questions"),
        (format!("nameserver 1.1.1.1\n{}", "nameserver ::1\n".repeat(3)), "", "never asked: ::1"),
        (format!("search{long}\n"), "", "has 7 domains"),
        (format!("search {}.example\n", "x".repeat(250)), "", "and 258 characters"),
    ] {
        let found = search(&settings, sources);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert!(finding.state == FindingState::Warning && finding.message.contains(text), "{finding:?}");
    }
    assert_eq!(states(ProxyMode::Nftables, Check::Resolver, &MachineFacts::default()), []);
    let does = "listens at port 53 of all addresses".to_owned();
    let holder = Holder { program: "dnsmasq".to_owned(), process: Some(7), does };
    let seen = MachineFacts { name_servers: vec![holder], ..MachineFacts::default() };
    assert_eq!(states(ProxyMode::Nftables, Check::DnsPort, &seen), WARNING);
    assert_eq!(states(ProxyMode::Nftables, Check::DnsPort, &MachineFacts::default()), FINE);
}
