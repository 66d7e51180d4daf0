//! Desired elements of one frontend, and the check for packet programs (frontends with verdicts) that this
//! backend does not support.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use litemap::LiteMap;
use model::{
    kinds::service::{Protocol, Scheduler, SchedulerFlag},
    primitives::{
        net::{self, IpFamily},
        quantity::Weight,
    },
    program::{Frontend, Masquerade, Program, Route, Target, Targets, Verdict, survival, table},
};

use super::{
    element::{FrontendChain, GroupId, Span, TargetId, place},
    mirror::FrontendElements,
    schema::{Choice, LookupType, Pick, Pool, TARGETS_MAX, Treatment, VerdictClass},
    slots,
};

/// Checks that this backend supports a packet program (frontends with their verdicts).
///
/// # Errors
/// Returns the first unsupported feature as a message.
pub fn check(program: &Program) -> Result<(), String> {
    for (frontend, route) in &program.frontends {
        if place(frontend) == LookupType::NodePort && frontend.ports.single().is_none() {
            return Err("node ports cannot be ranges in mode nftables".to_owned());
        }
        for verdict in route.verdicts() {
            match verdict {
                Verdict::Forward { targets, .. } => {
                    check_forwarding(frontend, route)?;
                    check_targets(frontend, targets)?;
                    check_maglev(route, targets)?;
                }
                Verdict::Relay { .. } if frontend.protocol == Protocol::Sctp => {
                    return Err("SCTP cannot be handed to a listener".to_owned());
                }
                Verdict::Relay { .. } | Verdict::Reject | Verdict::Drop => {}
            }
        }
    }
    Ok(())
}

fn check_forwarding(frontend: &Frontend, route: &Route) -> Result<(), String> {
    if route.proxy_protocol.is_some() {
        return Err("the PROXY protocol needs mode userspace".to_owned());
    }
    if let Err(what) = choice(route) {
        return Err(format!("mode nftables does not support {what} of port {}", frontend.ports));
    }
    Ok(())
}

fn check_targets(frontend: &Frontend, targets: &Targets) -> Result<(), String> {
    let family = frontend.destination.family();
    if let Some(target) = targets.keys().find(|target| IpFamily::of(target.address) != family) {
        return Err(format!("target {} is not of the frontend's family {}", target.address, family.as_str()));
    }
    if targets.len() > usize::try_from(TARGETS_MAX).unwrap_or(usize::MAX) {
        return Err(format!("a port has {} endpoints; at most {TARGETS_MAX} are possible", targets.len()));
    }
    if !targets.values().any(|weight| weight.0 > 0) {
        return Err(format!("port {} forwards, but no target has a weight above 0", frontend.ports));
    }
    let is_range = place(frontend) == LookupType::Range;
    if is_range && targets.keys().any(|target| target.port.is_some()) {
        return Err(format!("ports {} keep their number, but a target names one", frontend.ports));
    }
    Ok(())
}

fn check_maglev(route: &Route, targets: &Targets) -> Result<(), String> {
    let most = if route.affinity_seconds.is_some() { table::AFFINITY_SIZE } else { table::SLOTS_MAX };
    let fits = usize::try_from(most).is_ok_and(|most| targets.len() <= most);
    if is_maglev(route) && !fits {
        return Err(format!(
            "scheduler mh has a slot for each of at most {most} endpoints of a port here, and the port has {}",
            targets.len()
        ));
    }
    Ok(())
}

/// Returns the method by which connections of a route pick a target slot (position in the list of targets), or a
/// description of the option that this backend does not support.
fn choice(route: &Route) -> Result<Choice, String> {
    let Some(Scheduler(name)) = &route.scheduler else {
        return match route.scheduler_flags.first() {
            None => Ok(Choice::Random),
            Some(flag) => Err(format!("scheduler flag {flag:?}")),
        };
    };
    let has = |flag| route.scheduler_flags.contains(&flag);
    match name.as_str() {
        "sh" if has(SchedulerFlag::Fallback) || has(SchedulerFlag::OnePacket) => {
            Err(format!("a flag among {:?} of scheduler sh", route.scheduler_flags))
        }
        "mh" if has(SchedulerFlag::OnePacket) => Err("flag onePacket of scheduler mh".to_owned()),
        "sh" | "mh" if has(SchedulerFlag::Port) => Ok(Choice::SourceAddressAndPort),
        "sh" | "mh" => Ok(Choice::SourceAddress),
        other => Err(format!("scheduler {other}")),
    }
}

/// Returns the set and map elements that a frontend needs in the kernel. A slot is a position in the
/// frontend's list of targets. As many slots as possible keep the target that they have in `held`, the
/// elements now in the kernel. `affinity_group` is the group with which the frontend shares session affinity.
#[must_use]
pub(super) fn wanted(
    frontend: &Frontend,
    route: &Route,
    held: &FrontendElements,
    affinity_group: Option<GroupId>,
) -> FrontendElements {
    let place = place(frontend);
    let is_range = place == LookupType::Range;
    let fails_over = route.fails_over && place == LookupType::Address;
    let mut wanted = FrontendElements { is_range, fails_over, affinity_group, ..FrontendElements::default() };
    let mut dispatches = LiteMap::new();
    for (source, (verdict, pool)) in VerdictClass::ALL.into_iter().zip(pools(route)) {
        let dispatch = match verdict {
            Verdict::Reject => FrontendChain::Refuse,
            Verdict::Drop => FrontendChain::Discard,
            Verdict::Relay { port } => {
                let address = unspecified(frontend.destination.family());
                wanted.pools.insert(pool, vec![Some(Target { address, port: Some(*port) })]);
                FrontendChain::Forward(relay(place, pool))
            }
            Verdict::Forward { masquerade, targets } => {
                let is_sticky = route.affinity_seconds.is_some();
                let slots = slots(route, &resolved(frontend, targets), || held.slots(pool));
                let pick = pick(frontend, route, *masquerade, pool, slots.len());
                if is_sticky {
                    let ids = identify(pool, &slots, held, &mut wanted.affinity_targets);
                    wanted.affinity_pools.insert(pool, ids);
                } else {
                    wanted.pools.insert(pool, slots.into_iter().map(Some).collect());
                }
                FrontendChain::Forward(pick)
            }
        };
        dispatches.insert(source, dispatch);
    }
    let distinct: BTreeSet<_> = dispatches.values().copied().collect();
    let allowed = route.allowed_sources.as_ref();
    wanted.dispatch = match (allowed, distinct.first()) {
        (None, Some(uniform)) if distinct.len() == 1 => Some(*uniform),
        (None, _) => Some(FrontendChain::BySource(place)),
        (Some(_), _) => Some(FrontendChain::Checked(place)),
    };
    if allowed.is_some() || distinct.len() > 1 {
        wanted.by_source = dispatches;
    }
    wanted.allowed = allowed.map_or_else(BTreeSet::new, |networks| {
        spans(networks, frontend.destination.family()).into_iter().collect()
    });
    wanted
}

/// Returns the target in each slot. With scheduler `mh`, the slots depend on the targets alone, so that all nodes
/// have the same. Otherwise as many slots as possible keep the target that they have in `held`.
fn slots(
    route: &Route,
    targets: &BTreeMap<Target, Weight>,
    held: impl FnOnce() -> Vec<Option<Target>>,
) -> Vec<Target> {
    let is_sticky = route.affinity_seconds.is_some();
    if route.owners.is_some() {
        return table::table(targets, survival::SLOTS);
    }
    if is_maglev(route) {
        return table::table(
            targets,
            if is_sticky { table::AFFINITY_SIZE } else { table::size(targets.len()) },
        );
    }
    let counts = if is_sticky { slots::affinity_counts(targets) } else { slots::counts(targets) };
    slots::layout(&held(), &counts)
}

/// Method by which packets on the two-stage path pick a slot, and the owner of each slot: the address of another node,
/// or `None` for this node.
pub(super) type SlotAssignment = (Choice, Vec<Option<IpAddr>>);

/// Returns the owners of the slots of a frontend; `None` if it has no two-stage path.
pub(super) fn owners(frontend: &Frontend, route: &Route) -> Option<SlotAssignment> {
    let owners = &route.owners.as_ref()?.0;
    let targets = resolved(frontend, &survival::slot_targets(route)?);
    let choice = choice(route).ok().filter(|_| place(frontend) == LookupType::Address)?;
    let slots = table::table(&targets, survival::SLOTS);
    Some((choice, slots.iter().map(|target| owners.get(&target.address).copied()).collect()))
}

fn is_maglev(route: &Route) -> bool {
    route.scheduler.as_ref().is_some_and(|Scheduler(name)| name.as_str() == "mh")
}

/// Returns the verdicts in the order of [`VerdictClass::ALL`], each with its pool of targets. Verdicts with
/// the same targets share a pool.
fn pools(route: &Route) -> [(&Verdict, Pool); 3] {
    let Route { from_workloads, from_node, from_elsewhere, .. } = route;
    let same = |a: &Verdict, b: &Verdict| match (a, b) {
        (Verdict::Forward { targets: a, .. }, Verdict::Forward { targets: b, .. }) => a == b,
        (Verdict::Relay { port: a }, Verdict::Relay { port: b }) => a == b,
        (Verdict::Forward { .. } | Verdict::Relay { .. } | Verdict::Reject | Verdict::Drop, _) => false,
    };
    let of_node = if same(from_node, from_workloads) { Pool::Workloads } else { Pool::Node };
    let of_others = if same(from_elsewhere, from_workloads) {
        Pool::Workloads
    } else if same(from_elsewhere, from_node) {
        of_node
    } else {
        Pool::Elsewhere
    };
    [(from_workloads, Pool::Workloads), (from_node, of_node), (from_elsewhere, of_others)]
}

/// Returns the targets of a frontend. If the frontend has a single port, targets without a port get that
/// port.
fn resolved(frontend: &Frontend, targets: &Targets) -> BTreeMap<Target, Weight> {
    let port = |target: &Target| target.port.or(frontend.ports.single());
    targets.iter().map(|(target, weight)| (Target { port: port(target), ..*target }, *weight)).collect()
}

/// Returns the target id of each slot (position in the list of targets), and adds the ids to `wanted`.
/// Targets that already have an id in `wanted` or `held` keep it; other ids are derived from the target.
fn identify(
    pool: Pool,
    slots: &[Target],
    held: &FrontendElements,
    wanted: &mut BTreeMap<(Pool, TargetId), Target>,
) -> Vec<Option<TargetId>> {
    let (mut ids, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for ((_, id), target) in wanted.iter().chain(&held.affinity_targets) {
        if !ids.contains_key(target) && taken.insert(*id) {
            ids.insert(*target, *id);
        }
    }
    for target in slots {
        let id = *ids.entry(*target).or_insert_with(|| {
            let mut id = TargetId::of(target);
            while !taken.insert(id) {
                id = id.next();
            }
            id
        });
        wanted.insert((pool, id), *target);
    }
    slots.iter().map(|target| ids.get(target).copied()).collect()
}

fn pick(frontend: &Frontend, route: &Route, masquerade: Masquerade, pool: Pool, slots: usize) -> Pick {
    let place = place(frontend);
    Pick {
        place,
        masquerade,
        pool,
        slots: u32::try_from(slots).unwrap_or(TARGETS_MAX),
        choice: choice(route).unwrap_or(Choice::Random),
        action: match place {
            LookupType::Range => Treatment::TranslateAddress,
            LookupType::Address | LookupType::NodePort => Treatment::Translate,
        },
        affinity_seconds: route.affinity_seconds,
    }
}

/// Returns the parameters of the chain that redirects connections to the listener of a userspace relay. The
/// listener implements session affinity and source hashing, so the chain does not.
const fn relay(place: LookupType, pool: Pool) -> Pick {
    Pick {
        place,
        masquerade: Masquerade::Never,
        pool,
        slots: 1,
        choice: Choice::Random,
        action: Treatment::Redirect,
        affinity_seconds: None,
    }
}

fn unspecified(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpFamily::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns the union of networks as address ranges; adjacent ranges are merged.
pub(super) fn spans(networks: &BTreeSet<IpNet>, family: IpFamily) -> Vec<Span> {
    let of_family = networks.iter().filter(|network| IpFamily::of_net(network) == family);
    let number = |address: IpAddr| net::to_number(address);
    let mut ranges: Vec<_> =
        of_family.map(|network| (number(network.network()), number(network.broadcast()))).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(previous) if previous.1.checked_add(1).is_none_or(|next| first <= next) => {
                previous.1 = previous.1.max(last);
            }
            Some(_) | None => merged.push((first, last)),
        }
    }
    let address = |number| net::from_number(family, number);
    let span = |(first, last)| Some(Span { first: address(first)?, last: address(last)? });
    merged.into_iter().filter_map(span).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{
        primitives::{
            name::Label,
            quantity::{Port, PortRange},
        },
        program::{Destination, Role},
    };

    use super::*;

    fn target(number: u8) -> Target {
        Target { address: IpAddr::from([10, 1, 0, number]), port: Port::new(8080) }
    }

    fn route(scheduler: Option<&str>, targets: impl IntoIterator<Item = u8>) -> Route {
        let targets = targets.into_iter().map(|number| (target(number), Weight(1))).collect();
        let targets = std::sync::Arc::new(targets);
        let mut route =
            Route::new(Role::LoadBalancer, Verdict::Forward { masquerade: Masquerade::Always, targets });
        route.scheduler = scheduler.map(|name| Scheduler(Label::parse(name).unwrap()));
        route
    }

    /// Nodes with different earlier endpoints have equal tables with scheduler `mh`, and only with it.
    #[test]
    fn slots_of_scheduler_mh_do_not_depend_on_earlier_endpoints() {
        let ports = PortRange::from(Port::new(80).unwrap());
        let destination = Destination::Address([192, 0, 2, 1].into());
        let frontend = Frontend { destination, protocol: Protocol::Tcp, ports };
        for (scheduler, is_equal) in [(Some("mh"), true), (None, false)] {
            let after = |earlier: &[u8]| {
                let held = FrontendElements::default();
                let held = wanted(&frontend, &route(scheduler, earlier.iter().copied()), &held, None);
                wanted(&frontend, &route(scheduler, 1..=4), &held, None).pools
            };
            let tables: BTreeSet<_> = [&[2, 3, 4, 5][..], &[1], &[4, 3]].map(after).into();
            assert_eq!(tables.len() == 1, is_equal, "{scheduler:?}");
        }
    }

    #[test]
    fn scheduler_mh_with_affinity_has_a_limit_of_endpoints() {
        let many = (0..510u16).map(|number| {
            let [high, low] = number.to_be_bytes();
            (Target { address: IpAddr::from([10, 1, high, low]), port: Port::new(80) }, Weight(1))
        });
        let targets = std::sync::Arc::new(many.collect());
        let mut route = route(Some("mh"), []);
        assert_eq!(check_maglev(&route, &targets), Ok(()));
        route.affinity_seconds = Some(60);
        let message = check_maglev(&route, &targets).unwrap_err();
        assert!(message.contains("at most 509 endpoints") && message.contains("510"), "{message}");
    }
}
