//! Tests of the kernel state in iptables mode: no writes without differences, repair of drift, and no changes
//! to rules of other programs. Each test runs for every variant of iptables (nft, legacy) that the kernel
//! supports. All tests also run in the guest VM (`lab/guest.sh`).

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{fs::File, thread, time::Duration};

use model::{
    kinds::{
        node::Naming,
        resource::ServiceKey,
        service::{Protocol, Scheduler, SchedulerFlag},
    },
    primitives::{name::Label, net::IpFamily},
    program::{Masquerade, Verdict},
    wire::report::FailureReason,
};
use nix::fcntl::{Flock, FlockArg};
use node_agent::dataplane::{
    Dataplane, DesiredState, Outcome, Scope,
    iptables::{Flavour, IptablesBackend, IptablesOptions, layout::NamingLayout},
};

use crate::support::{
    Namespace,
    iptables::{backend, flavours, iptables, is_guest, layout, named, restore, run_in_guest, saved},
    programs::*,
};

/// Builds a desired state that needs every kind of chain and rule, in both address families.
fn everything() -> DesiredState {
    let (a, b) = (("10.1.1.2", 8080, 3), ("10.1.2.2", 8080, 1));
    let mut desired = desired(vec![
        ("one", simple("10.96.0.1", &[a, b])),
        ("two", simple("fd96::2", &[("fd01:1::2", 8080, 1)])),
        ("none", simple("10.96.0.3", &[])),
    ]);
    desired.networks.masquerade_sources =
        ["192.0.2.0/24", "2000::/3"].iter().map(|text| text.parse().unwrap()).collect();
    desired.networks.workloads =
        ["10.1.0.0/16", "10.3.0.0/16"].iter().map(|text| text.parse().unwrap()).collect();
    let mut many = program(
        &["10.96.0.4"],
        &["10.1.1.2"],
        &[
            (at("10.96.0.4", Protocol::Udp, 53), forward(Masquerade::OffCluster, &[a])),
            (at("203.0.113.7", Protocol::Sctp, 53), forward(Masquerade::Always, &[a, b])),
            (node_port(IpFamily::V4, Protocol::Udp, 30053), forward(Masquerade::Always, &[a])),
            (node_port(IpFamily::V6, Protocol::Udp, 30053), Verdict::Reject),
        ],
    );
    let here = many.frontends.get_mut(&node_port(IpFamily::V4, Protocol::Udp, 30053)).unwrap();
    here.from_elsewhere = Verdict::Drop;
    here.affinity_seconds = Some(10_800);
    let open = many.frontends.get_mut(&at("203.0.113.7", Protocol::Sctp, 53)).unwrap();
    open.allowed_sources = Some(["198.51.100.0/24".parse().unwrap()].into());
    let ports = model::primitives::quantity::PortRange::new(port(8000), port(8100));
    let range = model::program::Frontend { ports, ..at("10.96.0.4", Protocol::Tcp, 1) };
    let target = model::program::Target { address: address("10.1.1.2"), port: None };
    let verdict = Verdict::Forward {
        masquerade: Masquerade::OffCluster,
        targets: std::sync::Arc::new([(target, model::primitives::quantity::Weight(1))].into()),
    };
    many.frontends.insert(range, route(&range, verdict));
    set(&mut desired, "many", many);
    desired
}

#[test]
fn f079_a_fresh_process_with_an_equal_desired_state_writes_nothing() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-again-{}", flavour.as_str()));
        namespace.run(|| {
            let desired = everything();
            let mut first = backend(flavour);
            assert!(verified(&first.apply(&desired, &Scope::Everything)) > 0);
            assert!(!first.is_disturbed().unwrap());
            let before = saved(&namespace, flavour);
            let mut second = backend(flavour);
            second.observe().unwrap();
            assert_eq!(verified(&second.apply(&desired, &Scope::Everything)), 0);
            assert_eq!(verified(&second.apply(&desired, &only(&["one", "many"]))), 0);
            assert_eq!(second.counters().transactions, 0);
            assert!(!first.is_disturbed().unwrap());
            assert_eq!(saved(&namespace, flavour), before);
        });
    }
}

#[test]
fn f078_whatever_somebody_else_changes_is_seen_and_repaired_exactly() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-drift-{}", flavour.as_str()));
        namespace.run(|| {
            let desired = everything();
            let mut backend = backend(flavour);
            verified(&backend.apply(&desired, &Scope::Everything));
            let right = sorted(&saved(&namespace, flavour));
            let chain = right
                .iter()
                .find(|line| line.starts_with("-A TG-SVC-") && line.contains("default/one"))
                .unwrap();
            let chain = chain.split(' ').nth(1).unwrap();
            for damage in [
                "-t nat -F",
                "-t filter -F",
                "-t nat -D PREROUTING 1",
                "-t filter -D FORWARD 2",
                "-t nat -F TG-SERVICES",
                "-t nat -D TG-SERVICES 1",
                "-t nat -A TG-SERVICES -j ACCEPT",
                "-t nat -I TG-SERVICES -j TG-NODEPORTS",
                "-t nat -I TG-MARK-MASQ -j RETURN",
                "-t filter -I TG-REJECT -j ACCEPT",
                "-t nat -N TG-SVC-AAAAAAAAAAAAAAAA",
                "-t nat -A TG-NODEPORTS -p tcp --dport 9 -j ACCEPT",
                "-t filter -I OUTPUT -j TG-NODEPORTS",
                &format!("-t nat -D {chain} 1"),
                &format!("-t nat -F {chain}"),
            ] {
                iptables(&namespace, flavour, damage);
                assert!(is_seen(&mut backend), "{damage} must be seen");
                backend.observe().unwrap();
                assert!(verified(&backend.apply(&desired, &Scope::Everything)) > 0, "{damage}");
                assert!(!backend.is_disturbed().unwrap(), "{damage}");
                assert_eq!(sorted(&saved(&namespace, flavour)), right, "after {damage}");
                assert_eq!(verified(&backend.apply(&desired, &Scope::Everything)), 0);
            }
            if flavour == Flavour::Nft {
                namespace.nft("flush ruleset");
                assert!(backend.is_disturbed().unwrap());
                backend.observe().unwrap();
                verified(&backend.apply(&desired, &Scope::Everything));
                assert_eq!(sorted(&saved(&namespace, flavour)), right);
            }
        });
    }
}

/// Waits until the backend detects a change by another program, and returns true, or false on timeout. Legacy
/// tables are polled.
fn is_seen(backend: &mut IptablesBackend) -> bool {
    (0..200).any(|_| {
        thread::sleep(Duration::from_millis(50));
        backend.is_disturbed().unwrap()
    })
}

/// Sorts the lines of a listing. Chains are listed in creation order, which a repair may change.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Rules of Docker, of the kubelet and of a user, some of them with names similar to those of the agent.
const FOREIGN: &str = "*nat
:DOCKER - [0:0]
:TG-MINE - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
-A TG-MINE -j RETURN
COMMIT
*mangle
-A PREROUTING -p tcp -m tcp --dport 22 -j MARK --set-xmark 0x10/0xffffffff
COMMIT
*filter
:INPUT DROP [0:0]
:KUBE-FIREWALL - [0:0]
:TG-SEP-NOT-OURS - [0:0]
-A INPUT -m comment --comment \"by hand\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A FORWARD -s 10.0.0.0/8 -j TG-SEP-NOT-OURS
COMMIT";

#[test]
fn f079_foreign_rules_stay_as_they_are_from_first_pass_to_cleanup() {
    for (flavour, naming) in flavours()
        .into_iter()
        .flat_map(|flavour| [Naming::Tidegate, Naming::Kube].map(|naming| (flavour, naming)))
    {
        let namespace = Namespace::new(&format!("ipt-other-{}", flavour.as_str()));
        restore(&namespace, flavour, "iptables", FOREIGN);
        restore(&namespace, flavour, "ip6tables", "*filter\n-A INPUT -s fd00::9/128 -j DROP\nCOMMIT");
        let before = saved(&namespace, flavour);
        let foreign = || -> Vec<String> {
            let prefix = if naming == Naming::Kube { "KUBE-" } else { "TG-" };
            let text = saved(&namespace, flavour);
            let is_ours = |line: &str| line.contains(prefix) && !before.lines().any(|other| other == line);
            let is_rule =
                |line: &&str| line.starts_with("-A") || line.ends_with('-') || line.ends_with("DROP");
            text.lines().filter(is_rule).filter(|line| !is_ours(line)).map(str::to_owned).collect()
        };
        let untouched = foreign();
        namespace.run(|| {
            let mut desired = everything();
            let mut backend = named(flavour, naming);
            verified(&backend.apply(&desired, &Scope::Everything));
            assert_eq!(foreign(), untouched);
            desired.programs.remove(&key("many"));
            verified(&backend.apply(&desired, &only(&["many"])));
            verified(&backend.apply(&desired, &Scope::Everything));
            assert_eq!(foreign(), untouched);
            let mut fresh = named(flavour, naming);
            assert!(fresh.cleanup().unwrap() > 0, "a fresh process finds what another one made");
            assert_eq!(fresh.cleanup().unwrap(), 0);
        });
        let after = saved(&namespace, flavour);
        let is_empty_table = |line: &str| line.starts_with([':', '*']) || line == "COMMIT";
        let rules = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !is_empty_table(line)).map(str::to_owned).collect()
        };
        assert_eq!(rules(&after), rules(&before));
        for line in before.lines() {
            assert!(after.lines().any(|other| other == line), "{line}");
        }
        assert!(!after.contains("TG-SERVICES") && !after.contains("KUBE-SERVICES"), "{after}");
    }
}

#[test]
fn cleanup_of_a_host_without_rules_leaves_none() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-clean-{}", flavour.as_str()));
        let before = saved(&namespace, flavour);
        namespace.run(|| {
            let mut backend = backend(flavour);
            verified(&backend.apply(&everything(), &Scope::Everything));
            assert!(backend.retire().unwrap());
        });
        let rules = |text: &str| text.lines().filter(|line| line.starts_with('-')).count();
        let after = saved(&namespace, flavour);
        assert_eq!((rules(&before), rules(&after)), (0, 0), "{after}");
        assert!(!after.contains("TG-"), "{after}");
        if flavour == Flavour::Nft {
            assert_eq!(namespace.exec(&["nft", "list", "ruleset"]), "", "tables that were made are gone");
        }
    }
}

#[test]
fn f100_the_jump_to_services_stays_before_that_of_docker_also_when_docker_makes_its_own_again() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-first-{}", flavour.as_str()));
        restore(&namespace, flavour, "iptables", FOREIGN);
        let jumps = |chain: &str| -> Vec<String> {
            let listing = iptables(&namespace, flavour, &format!("-t nat -S {chain}"));
            listing.lines().filter_map(|line| line.split_once("-j ")).map(|(_, to)| to.to_owned()).collect()
        };
        namespace.run(|| {
            let desired = everything();
            let mut backend = backend(flavour);
            verified(&backend.apply(&desired, &Scope::Everything));
            for chain in ["PREROUTING", "OUTPUT"] {
                assert_eq!(jumps(chain), ["TG-SERVICES", "DOCKER"]);
            }
            // Docker deletes its jumps when it stops and creates them again when it starts.
            for verb in ["-D", "-A", "-D", "-I"] {
                let line = format!("-t nat {verb} PREROUTING -m addrtype --dst-type LOCAL -j DOCKER");
                iptables(&namespace, flavour, &line);
                assert!(backend.is_disturbed().unwrap() || flavour == Flavour::Legacy);
                backend.observe().unwrap();
                verified(&backend.apply(&desired, &Scope::Everything));
                assert_eq!(jumps("PREROUTING")[0], "TG-SERVICES", "after {line}");
            }
            assert_eq!(jumps("PREROUTING"), ["TG-SERVICES", "DOCKER"]);
        });
    }
}

#[test]
fn both_namings_live_side_by_side() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-both-{}", flavour.as_str()));
        namespace.run(|| {
            let desired = everything();
            let mut ours = named(flavour, Naming::Tidegate);
            verified(&ours.apply(&desired, &Scope::Everything));
            let before = sorted(&saved(&namespace, flavour));
            let mut kube = named(flavour, Naming::Kube);
            verified(&kube.apply(&desired, &Scope::Everything));
            kube.cleanup().unwrap();
            assert_eq!(sorted(&saved(&namespace, flavour)), before);
        });
    }
}

#[test]
fn a_pass_over_one_service_fails_when_the_rules_are_gone_and_the_next_full_pass_rebuilds() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-gone-{}", flavour.as_str()));
        namespace.run(|| {
            let mut desired = everything();
            let mut backend = backend(flavour);
            verified(&backend.apply(&desired, &Scope::Everything));
            for line in ["-t nat -F", "-t nat -X", "-t filter -F", "-t filter -X"] {
                iptables(&namespace, flavour, line);
            }
            set(&mut desired, "one", simple("10.96.0.1", &[("10.1.2.2", 8080, 1)]));
            let pass = backend.apply(&desired, &only(&["one"]));
            assert!(pass.failed.is_some());
            backend.observe().unwrap();
            assert!(verified(&backend.apply(&desired, &Scope::Everything)) > 0);
            let mut fresh = self::backend(flavour);
            assert_eq!(verified(&fresh.apply(&desired, &Scope::Everything)), 0);
        });
    }
}

#[test]
fn a_service_that_cannot_be_programmed_stops_no_other() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-bad-{}", flavour.as_str()));
        namespace.run(|| {
            let mut desired = everything();
            let mut backend = backend(flavour);
            verified(&backend.apply(&desired, &Scope::Everything));
            let good = simple("10.96.0.10", &[("10.1.1.2", 8080, 1)]);
            let mut scheduled = simple("10.96.0.11", &[("10.1.1.2", 8080, 1)]);
            let scheduler = Scheduler(Label::parse("lc").unwrap());
            scheduled
                .frontends
                .iter_mut()
                .map(|(_, route)| route)
                .for_each(|route| route.scheduler = Some(scheduler.clone()));
            let mut flagged = simple("10.96.0.12", &[("10.1.1.2", 8080, 1)]);
            flagged.frontends.iter_mut().map(|(_, route)| route).for_each(|route| {
                route.scheduler_flags.insert(SchedulerFlag::Port);
            });
            // The tool rejects an endpoint of the other family.
            let mixed = simple("10.96.0.13", &[("fd01:1::2", 8080, 1)]);
            let long =
                ServiceKey::try_from(format!("default/{}", vec!["n".repeat(60); 4].join("."))).unwrap();
            set(&mut desired, "s-good", good);
            set(&mut desired, "s-scheduled", scheduled);
            set(&mut desired, "s-flagged", flagged);
            set(&mut desired, "s-mixed", mixed);
            let program = desired.programs[&key("s-good")].clone();
            let mut program = program;
            program.program = std::sync::Arc::new(simple("10.96.0.14", &[("10.1.1.2", 8080, 1)]));
            desired.programs.insert(long.clone(), program);
            for everything in [false, true] {
                let scope = if everything {
                    Scope::Everything
                } else {
                    let names = ["s-good", "s-scheduled", "s-flagged", "s-mixed"];
                    Scope::Services(names.map(key).into_iter().chain([long.clone()]).collect())
                };
                let pass = backend.apply(&desired, &scope);
                assert!(pass.failed.is_none(), "{:?}", pass.failed);
                let reason = |service: &ServiceKey| match &pass.outcomes[service] {
                    Outcome::Verified => None,
                    Outcome::Failed { reason, message } => {
                        assert!(!message.is_empty());
                        Some(*reason)
                    }
                };
                assert_eq!(reason(&key("s-good")), None);
                assert_eq!(reason(&key("s-scheduled")), Some(FailureReason::Unsupported));
                assert_eq!(reason(&key("s-flagged")), Some(FailureReason::Unsupported));
                assert_eq!(reason(&key("s-mixed")), Some(FailureReason::KernelRefused));
                assert_eq!(reason(&long), Some(FailureReason::Unsupported));
            }
            let listing = saved(&namespace, flavour);
            assert!(listing.contains("default/s-good: cluster IP"));
            assert!(!listing.contains("s-mixed") && !listing.contains("s-scheduled"), "{listing}");
        });
    }
}

#[test]
fn a_frontend_moves_between_services_and_the_first_of_two_has_it() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-move-{}", flavour.as_str()));
        namespace.run(|| {
            for (from, to) in [("a", "b"), ("b", "a")] {
                let mut backend = backend(flavour);
                let mut desired = desired(vec![(from, simple("10.96.0.1", &[("10.1.1.2", 8080, 1)]))]);
                verified(&backend.apply(&desired, &Scope::Everything));
                desired.programs.clear();
                set(&mut desired, to, simple("10.96.0.1", &[("10.1.2.2", 8080, 1)]));
                verified(&backend.apply(&desired, &only(&["a", "b"])));
                assert_eq!(verified(&self::backend(flavour).apply(&desired, &Scope::Everything)), 0);
            }
            let mut desired = desired(vec![("b", simple("10.96.0.1", &[("10.1.1.2", 8080, 1)]))]);
            let mut backend = backend(flavour);
            verified(&backend.apply(&desired, &Scope::Everything));
            set(&mut desired, "a", simple("10.96.0.1", &[("10.1.2.2", 8080, 1)]));
            let pass = backend.apply(&desired, &only(&["a"]));
            assert_eq!(pass.outcomes[&key("a")], Outcome::Verified);
            assert!(matches!(pass.outcomes[&key("b")], Outcome::Failed { .. }));
            assert!(saved(&namespace, flavour).contains("default/a: cluster IP"));
            desired.programs.remove(&key("a"));
            let pass = backend.apply(&desired, &only(&["a"]));
            assert_eq!(pass.outcomes[&key("b")], Outcome::Verified, "it inherits");
            assert_eq!(verified(&self::backend(flavour).apply(&desired, &Scope::Everything)), 0);
        });
    }
}

#[test]
fn f062_an_endpoint_change_writes_the_chains_of_its_service_and_another_network_all_lines_of_it() {
    for flavour in flavours() {
        let namespace = Namespace::new(&format!("ipt-few-{}", flavour.as_str()));
        namespace.run(|| {
            let mut desired = everything();
            let mut backend = backend(flavour);
            verified(&backend.apply(&desired, &Scope::Everything));
            set(&mut desired, "one", simple("10.96.0.1", &[("10.1.1.2", 8080, 3), ("10.1.9.9", 8080, 1)]));
            let before = backend.counters();
            let writes = verified(&backend.apply(&desired, &only(&["one"])));
            assert_eq!((writes, backend.counters().transactions - before.transactions), (8, 1));
            assert!(!backend.is_disturbed().unwrap());
            desired.networks.masquerade_sources = ["0.0.0.0/1".parse().unwrap()].into();
            assert!(verified(&backend.apply(&desired, &only(&["one"]))) > 0);
            assert_eq!(verified(&self::backend(flavour).apply(&desired, &Scope::Everything)), 0);
        });
    }
}

#[test]
fn the_flavour_that_holds_rules_is_chosen() {
    if is_guest() {
        return;
    }
    for flavour in Flavour::ALL {
        let namespace = Namespace::new(&format!("ipt-which-{}", flavour.as_str()));
        restore(&namespace, flavour, "iptables", FOREIGN);
        namespace.run(|| {
            let options = IptablesOptions { layout: layout(Naming::Tidegate), flavour: None };
            let mut chosen = IptablesBackend::open(&options).unwrap();
            assert_eq!(chosen.flavour(), flavour);
            verified(&chosen.apply(&everything(), &Scope::Everything));
            // A larger number of foreign rules in the other flavor does not change our choice.
            let other = Flavour::ALL.into_iter().find(|other| *other != flavour).unwrap();
            restore(&namespace, other, "iptables", FOREIGN);
            assert_eq!(IptablesBackend::open(&options).unwrap().flavour(), flavour);
            // Rules of an earlier agent in the other flavor are removed by a cleanup.
            verified(&backend(other).apply(&everything(), &Scope::Everything));
            chosen.cleanup().unwrap();
            assert!(!saved(&namespace, other).contains("TG-SERVICES"));
        });
    }
    let namespace = Namespace::new("ipt-which-none");
    namespace.run(|| {
        let options = IptablesOptions { layout: layout(Naming::Tidegate), flavour: None };
        let default = IptablesBackend::open(&options).unwrap().flavour();
        let version = namespace.exec(&["iptables", "--version"]);
        assert_eq!(default == Flavour::Nft, version.contains("nf_tables"), "{version}");
    });
}

#[test]
fn marks_must_be_two_different_bits() {
    let namespace = Namespace::new("ipt-marks");
    namespace.run(|| {
        for (masquerade_mark, drop_mark) in [(0, 0x8000), (0x4000, 0x4000), (0x3, 0x8000)] {
            let layout =
                NamingLayout { naming: Naming::Tidegate, masquerade_mark, drop_mark, drop_invalid: true };
            assert!(IptablesBackend::open(&IptablesOptions { layout, flavour: None }).is_err());
        }
    });
}

/// While another tool holds the iptables lock, an update of the kernel fails as a whole, and the next update
/// succeeds. The lock file in `/run` is shared by the whole machine, so that the test runs in the guest VM
/// (`lab/guest.sh`), which has its own.
#[test]
fn while_another_tool_holds_the_lock_a_pass_fails_whole_and_the_next_one_makes_up_for_it() {
    if !is_guest() {
        let name = "iptables_state::while_another_tool_holds_the_lock_a_pass_fails_whole_and_the_next_one_makes_up_for_it";
        return run_in_guest(&[name]);
    }
    let namespace = Namespace::new("ipt-lock");
    namespace.run(|| {
        let desired = everything();
        let mut backend = backend(Flavour::Legacy);
        let lock = File::options().create(true).append(true).open("/run/xtables.lock").unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap();
        let pass = backend.apply(&desired, &Scope::Everything);
        let failure = pass.failed.expect("a pass without the lock fails");
        assert_eq!(failure.source.kind(), std::io::ErrorKind::ResourceBusy, "{failure:?}");
        assert!(!saved(&namespace, Flavour::Legacy).contains("TG-"), "nothing is half there");
        // A waiting tool gets the lock when it is released in time.
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(500));
                drop(lock);
            });
            assert!(verified(&backend.apply(&desired, &Scope::Everything)) > 0);
        });
        println!("the lock was waited for");
    });
}

#[test]
fn f079_rules_are_known_again_and_removed_with_the_legacy_tables_of_another_kernel() {
    if !is_guest() {
        run_in_guest(&[
            "iptables_state::f079_a_fresh_process_with_an_equal_desired_state_writes_nothing",
            "iptables_state::cleanup_of_a_host_without_rules_leaves_none",
        ]);
    }
}
