//! Property: for random objects, the packet programs that the compiler derives have the results that the second
//! oracle states, in every proxy mode. `TIDEGATE_SEED` repeats a run; the seed of a failing run is part of its message.

use std::collections::BTreeMap;

use model::{
    compile::{compile, network, node_state},
    kinds::service::Protocol,
    primitives::{name::Name, net::IpFamily},
    program::{
        NodeLocation, Program,
        lower::{ipvs, userspace},
        oracle::{Fate, fate},
        program,
    },
    wire::networks::networks,
};
use proptest::test_runner::{TestCaseError, TestError};

use crate::second_oracle::{
    Dialect, Estate,
    draw::{self, DrawOptions, DrawnState},
};

/// Number of random clusters of each IP family, and of connections in each.
const CLUSTERS: u32 = 1000;
const CONNECTIONS: usize = 16;
/// Maximum number of attempts to reduce a failing cluster to a smaller one.
const SHRINKS_MAX: u32 = 2000;

/// Programs of the Services of a cluster on its node, as a proxy mode carries them out.
fn programs(estate: &Estate, dialect: Dialect) -> Result<BTreeMap<&str, Program>, String> {
    let snapshot = estate.snapshot();
    let zone = estate.nodes[&estate.here].zone.clone();
    let place = NodeLocation { node: Name::parse(&estate.here).unwrap(), zone };
    let mut programs = BTreeMap::new();
    for (name, service) in &estate.services {
        let compiled = compile(&snapshot, &draw::key(name)).ok_or("the Service is compiled")?;
        if !compiled.is_programmable() {
            continue;
        }
        let program = program(&compiled, &place).map_err(|fields| format!("{fields:?}"))?;
        let counted = program.health_check.map(|check| check.local_endpoints);
        let expected = estate.local_endpoints(service);
        if counted != expected {
            return Err(format!("{name}: the health check counts {counted:?}, not {expected:?}"));
        }
        let lowered = match dialect {
            Dialect::Exact => program,
            Dialect::Ipvs => ipvs::lower(&program)?,
            Dialect::Userspace => userspace::expect(&program),
        };
        programs.insert(name.as_str(), lowered);
    }
    Ok(programs)
}

/// Compares the results of both oracles for all connections. Returns the number of connections that are forwarded.
fn compare(drawn: &DrawnState) -> Result<[usize; 2], String> {
    let DrawnState { estate, questions } = drawn;
    let snapshot = estate.snapshot();
    let here = Name::parse(&estate.here).unwrap();
    let networks = networks(&network(&snapshot), &node_state(&snapshot, &here, 64_512));
    let mut counts = [0; 2];
    for dialect in [Dialect::Exact, Dialect::Ipvs, Dialect::Userspace] {
        let programs = programs(estate, dialect)?;
        for question in questions {
            let connection = question.connection();
            let found = fate(programs.values(), &networks, &connection);
            let stated = estate.fate(dialect, &connection);
            if found != stated {
                return Err(format!(
                    "{dialect:?}: {question:?}\n  second oracle: {stated:?}\n  program:       {found:?}"
                ));
            }
            counts[0] += usize::from(estate.hit(&connection).is_some());
            counts[1] += usize::from(matches!(stated, Fate::Forward { .. }));
        }
    }
    Ok(counts)
}

#[test]
fn programs_do_what_the_second_oracle_states_in_random_clusters() {
    let seed = draw::seed();
    for family in IpFamily::ALL {
        let options = DrawOptions {
            family,
            connections: CONNECTIONS,
            protocols: &[Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp],
            schedulers: &["rr", "wrr", "sh"],
        };
        let totals = std::cell::Cell::new([0; 2]);
        let outcome = draw::runner(seed, CLUSTERS, SHRINKS_MAX).run(&draw::state(options), |drawn| {
            let [met, forwarded] = compare(&drawn).map_err(TestCaseError::fail)?;
            let [all_met, all_forwarded] = totals.get();
            totals.set([all_met + met, all_forwarded + forwarded]);
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, drawn)) => panic!("TIDEGATE_SEED={seed}: {reason}\nin {drawn:#?}"),
            Err(error @ TestError::Abort(_)) => panic!("TIDEGATE_SEED={seed}: {error}"),
        }
        let [met, forwarded] = totals.get();
        let all = usize::try_from(CLUSTERS).unwrap() * CONNECTIONS * 3;
        assert!(met * 2 >= all, "only {met} of {all} connections met a frontend");
        assert!(forwarded * 3 >= all, "only {forwarded} of {all} connections were forwarded");
    }
}

/// Both oracles state the same for the events that a random cluster rarely has: a health check node port, with
/// endpoints of both families on the node.
#[test]
fn the_second_oracle_counts_endpoints_for_the_health_check_alike() {
    let seed = draw::seed();
    let options =
        DrawOptions { family: IpFamily::V6, connections: 1, protocols: &[Protocol::Tcp], schedulers: &[] };
    let outcome = draw::runner(seed, 300, SHRINKS_MAX).run(&draw::state(options), |mut drawn| {
        for service in drawn.estate.services.values_mut() {
            service.spec.health_check_node_port = model::primitives::quantity::Port::new(30_999);
        }
        compare(&drawn).map(|_| ()).map_err(TestCaseError::fail)
    });
    assert!(outcome.is_ok(), "TIDEGATE_SEED={seed}: {outcome:?}");
}
