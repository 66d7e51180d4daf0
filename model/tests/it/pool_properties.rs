//! Property test of address allocation with random histories of writes to pools, Services and Nodes,
//! restarts, lost responses and waiting times: no address is allocated twice, none is lost, and no Service
//! waits although an address is free.
//!
//! The checks scan all addresses, and do not use the indices and searches of the allocator.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    admission::admit::{Operation, Request},
    cluster::snapshot::Snapshot,
    kinds::{
        address::AddressSpec,
        address_pool::AddressPoolSpec,
        resource::{Kind, Object, ObjectKey, ServiceKey},
        selector::Selector,
        service::{IpFamilyPolicy, LoadBalancer, ServiceSpec, ServiceType, TrafficPolicy},
    },
    primitives::{name::Name, net::IpFamily},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Cluster, object, of_kind};

#[derive(Debug, Clone)]
enum Step {
    Write { applied: Vec<Value>, deleted: Vec<String>, evict: bool, is_answer_lost: bool },
    Wait(i64),
    Restart,
}

/// Returns the IPv4 address `offset` after 198.51.100.250. Offsets are small, so that Services often request
/// the same address, and include one address that ends in .255 and one that ends in .0 (see `avoidBuggyIPs`).
fn address(offset: u8) -> String {
    std::net::Ipv4Addr::from(0xC633_64FA + u32::from(offset)).to_string()
}

fn a_service() -> impl Strategy<Value = Value> {
    let asks = (
        prop::option::weighted(0.3, prop::sample::select(vec!["p", "q", "r"])),
        prop::option::weighted(0.3, 0_u8..14),
        prop::option::weighted(0.5, prop::sample::select(vec!["k", "l"])),
        prop::sample::select(vec!["SingleStack", "PreferDualStack", "RequireDualStack"]),
        any::<bool>(),
    );
    let rest = (80_u16..83, prop::bool::weighted(0.2), prop::option::of("[xy]"), prop::option::of("[gh]"));
    ("[a-f]", prop::bool::weighted(0.9), prop::bool::weighted(0.2), asks, rest).prop_map(
        |(name, is_balancer, is_other, (pool, ask, key, policy, by_hand), (port, is_local, app, tier))| {
            let mut spec = json!({ "ports": [{ "port": port }], "ipFamilyPolicy": policy });
            if is_balancer {
                spec["type"] = json!("LoadBalancer");
                let mut wanted = json!({});
                if let Some(pool) = pool {
                    wanted["pool"] = json!(pool);
                }
                if let Some(ask) = ask {
                    let asked = if by_hand { format!("192.0.2.{}", ask % 3) } else { address(ask) };
                    wanted["addresses"] = json!([asked]);
                }
                if let Some(key) = key {
                    wanted["sharingKey"] = json!(key);
                }
                spec["loadBalancer"] = wanted;
                if is_local {
                    spec["externalTrafficPolicy"] = json!("Local");
                }
            } else if by_hand {
                spec["externalIPs"] = json!([format!("192.0.2.{}", port % 3)]);
            }
            if let Some(app) = app {
                spec["selector"] = json!({ "app": app });
            }
            let labels = tier.map_or(json!({}), |tier| json!({ "tier": tier }));
            let mut service = of_kind("Service", &name, labels, spec);
            service["metadata"]["namespace"] = json!(if is_other { "other" } else { "default" });
            service
        },
    )
}

fn a_pool() -> impl Strategy<Value = Value> {
    let ranges = (0_u8..14, 0_u8..5, any::<bool>(), prop::option::weighted(0.3, 0_u8..14), any::<bool>());
    let rest = (
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.15),
        prop::option::of(1_u32..3),
        prop::option::weighted(0.3, "[gh]"),
        prop::bool::weighted(0.2),
        prop::sample::select(vec![0, 0, 3, 6]),
    );
    ("[pqr]", ranges, rest).prop_map(|(name, (first, len, has_six, reserved, avoid), rest)| {
        let (auto, disabled, priority, tier, only_other, quarantine) = rest;
        let mut addresses = vec![format!("{}-{}", address(first), address((first + len).min(13)))];
        if has_six {
            let tenth = name.as_bytes()[0];
            addresses.push(format!("2001:db8:{tenth}::1-2001:db8:{tenth}::{}", 1 + len % 2));
        }
        if len == 4 {
            addresses.push("192.0.2.0/31".to_owned());
        }
        let mut spec = json!({
            "addresses": addresses, "autoAssign": auto, "disabled": disabled, "avoidBuggyIPs": avoid,
            "quarantineSeconds": quarantine,
        });
        if let Some(reserved) = reserved.filter(|one| (first..=(first + len).min(13)).contains(one)) {
            spec["reserved"] = json!([address(reserved)]);
        }
        if let Some(priority) = priority {
            spec["priority"] = json!(priority);
        }
        if let Some(tier) = tier {
            spec["serviceSelectors"] = json!([{ "matchLabels": { "tier": tier } }]);
        }
        if only_other {
            spec["namespaces"] = json!(["other"]);
        }
        of_kind("AddressPool", &name, json!({}), spec)
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let node = (0_u8..14, any::<bool>()).prop_map(|(last, is_inside)| {
        let address = if is_inside { address(last) } else { format!("192.0.2.{}", last % 3) };
        of_kind("Node", "n", json!({}), json!({ "addresses": [address] }))
    });
    let applied = prop_oneof![6 => a_service(), 3 => a_pool(), 1 => node];
    let deleted = prop_oneof![
        4 => "[a-f]".prop_map(|name| format!("services/default/{name}")),
        1 => "[a-f]".prop_map(|name| format!("services/other/{name}")),
        1 => "[pqr]".prop_map(|name| format!("addresspools//{name}")),
        1 => Just("nodes//n".to_owned()),
    ];
    let write = |applied, deleted| {
        (applied, deleted, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(applied, deleted, evict, is_answer_lost)| Step::Write {
                applied,
                deleted,
                evict,
                is_answer_lost,
            },
        )
    };
    prop_oneof![
        10 => write(prop::collection::vec(applied.clone(), 1..2), Just(vec![]).boxed()),
        3 => write(prop::collection::vec(applied.clone(), 0..1), prop::collection::vec(deleted.clone(), 1..2).boxed()),
        2 => write(prop::collection::vec(applied, 1..4), prop::collection::vec(deleted, 0..3).boxed()),
        2 => (1_i64..8).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// Contents of a snapshot as plain maps, on which the properties are checked.
struct State<'a> {
    snapshot: &'a Snapshot,
    records: BTreeMap<IpAddr, &'a AddressSpec>,
    services: BTreeMap<ServiceKey, (&'a Object, &'a ServiceSpec)>,
    pools: BTreeMap<Name, &'a AddressPoolSpec>,
}

impl<'a> State<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let list = |kind| snapshot.list(kind, None, None);
        let records = list(Kind::Address).map(|object| object.as_address().unwrap());
        let services = list(Kind::Service).map(|object| {
            (ServiceKey::of_object_key(&object.key()).unwrap(), (&**object, object.as_service().unwrap()))
        });
        let pools = list(Kind::AddressPool)
            .map(|object| (object.metadata.name.clone(), object.as_address_pool().unwrap()));
        Self {
            snapshot,
            records: records.map(|record| (record.address, record)).collect(),
            services: services.collect(),
            pools: pools.collect(),
        }
    }

    fn pool_of(&self, address: IpAddr) -> Option<(&Name, &AddressPoolSpec)> {
        let mut having = self.pools.iter().filter(|(_, pool)| pool.contains(address));
        let found = having.next().map(|(name, pool)| (name, *pool));
        assert!(having.next().is_none(), "{address} lies in two pools");
        found
    }

    /// True if a Service may have an address, apart from other Services that have the address. `asked` is
    /// true if the Service requests the address explicitly, `held` if the Service already has the address.
    fn may_have(&self, key: &ServiceKey, address: IpAddr, asked: bool, held: bool) -> bool {
        let (object, spec) = self.services[key];
        let wanted = wanted(spec);
        if self.snapshot.node_with_address(address).is_some() {
            return false;
        }
        match self.pool_of(address) {
            Some((name, pool)) => {
                let low = if let IpAddr::V4(v4) = address { v4.octets()[3] } else { 1 };
                !pool.reserved.iter().any(|range| range.contains(address))
                    && !(pool.avoid_buggy_ips && (low == 0 || low == 255))
                    && (pool.namespaces.is_empty() || pool.namespaces.contains(&key.namespace))
                    && Selector::any_matches(&pool.service_selectors, &object.metadata.labels)
                    && wanted.pool.as_ref().is_none_or(|named| named == name)
                    && (held || !pool.disabled)
                    && (held || asked || pool.auto_assign || wanted.pool.is_some())
            }
            None => asked && wanted.pool.is_none() && address.to_string().starts_with("192.0.2."),
        }
    }

    /// True if two Services may share an address: their sharing keys and external traffic policies are equal
    /// and their ports are disjoint; with policy Local, they also have the same namespace and the same
    /// selector, which is not empty.
    fn agree(&self, a: &ServiceKey, b: &ServiceKey) -> bool {
        let ((_, one), (_, other)) = (self.services[a], self.services[b]);
        let key = wanted(one).sharing_key;
        let disjoint = |one: &ServiceSpec| {
            one.ports.iter().all(|x| {
                other.ports.iter().all(|y| x.protocol != y.protocol || !x.range().overlaps(y.range()))
            })
        };
        key.is_some()
            && key == wanted(other).sharing_key
            && disjoint(one)
            && one.external_traffic_policy == other.external_traffic_policy
            && (one.external_traffic_policy == TrafficPolicy::Cluster
                || (one.selector == other.selector && !one.selector.is_empty() && a.namespace == b.namespace))
    }

    fn is_open_to(&self, key: &ServiceKey, address: IpAddr) -> bool {
        if self.services.values().any(|(_, spec)| spec.external_ips.contains(&address)) {
            return false;
        }
        match self.records.get(&address) {
            None => true,
            Some(record) if record.services.is_empty() => {
                record.quarantine.as_ref().is_none_or(|quarantine| quarantine.former == *key)
            }
            Some(record) => record.services.iter().all(|holder| self.agree(key, holder)),
        }
    }
}

fn wanted(spec: &ServiceSpec) -> LoadBalancer {
    spec.load_balancer.as_deref().cloned().unwrap_or_default()
}

/// Returns the IP families in which a Service needs a load balancer address, each with the address that it
/// requests explicitly, if any.
fn wants(spec: &ServiceSpec) -> BTreeMap<IpFamily, Option<IpAddr>> {
    if spec.service_type != ServiceType::LoadBalancer {
        return BTreeMap::new();
    }
    let named = wanted(spec).addresses;
    let is_single = spec.ip_family_policy == Some(IpFamilyPolicy::SingleStack);
    let mut wants: BTreeMap<IpFamily, Option<IpAddr>> = BTreeMap::new();
    if !is_single || named.is_empty() {
        wants.extend(spec.ip_families.iter().map(|family| (*family, None)));
    }
    wants.extend(named.iter().map(|address| (IpFamily::of(*address), Some(*address))));
    wants
}

fn everything_there_is() -> Vec<IpAddr> {
    let four = (0..14).map(address).chain((0..3).map(|last| format!("192.0.2.{last}")));
    let six = b"pqr".iter().flat_map(|pool| (1..3).map(move |last| format!("2001:db8:{pool}::{last}")));
    four.chain(six).map(|text| text.parse().unwrap()).collect()
}

fn check(snapshot: &Snapshot) {
    let state = State::of(snapshot);
    for (address, record) in &state.records {
        assert_eq!(record.services.is_empty(), record.quarantine.is_some(), "{record:?}");
        let pool = state.pool_of(*address).map(|(name, _)| name);
        for holder in &record.services {
            let (_, spec) =
                state.services.get(holder).unwrap_or_else(|| panic!("{holder} is gone: {record:?}"));
            let wants = wants(spec);
            let named = wants.get(&IpFamily::of(*address));
            let named = named.unwrap_or_else(|| panic!("{holder} does not want {address}"));
            assert!(named.is_none_or(|named| named == *address), "{holder} wants {named:?}, not {address}");
            assert!(
                state.may_have(holder, *address, named.is_some(), true),
                "{holder} may not have {address}"
            );
            assert_eq!(record.pool.as_ref(), pool, "{address}");
            assert_eq!(record.sharing_key, wanted(spec).sharing_key, "{holder} {address}");
            let others = record.services.iter().filter(|other| *other != holder);
            others.for_each(|other| {
                assert!(state.agree(holder, other), "{holder} and {other} clash at {address}")
            });
        }
    }
    for (key, (_, spec)) in &state.services {
        let held: Vec<IpAddr> = snapshot.addresses_of(key).collect();
        let families: BTreeSet<_> = held.iter().map(|address| IpFamily::of(*address)).collect();
        assert_eq!(families.len(), held.len(), "{key} has {held:?}");
        let by_records = state.records.values().filter(|record| record.services.contains(key));
        assert_eq!(by_records.map(|record| record.address).collect::<Vec<_>>(), held);
        let lacking: Vec<_> =
            wants(spec).into_iter().filter(|(family, _)| !families.contains(family)).collect();
        let can_have = |(family, named): &(IpFamily, Option<IpAddr>)| {
            everything_there_is().into_iter().any(|address| {
                IpFamily::of(address) == *family
                    && named.is_none_or(|named| named == address)
                    && state.may_have(key, address, named.is_some(), false)
                    && state.is_open_to(key, address)
            })
        };
        let is_satisfiable = if spec.ip_family_policy == Some(IpFamilyPolicy::RequireDualStack) {
            !lacking.is_empty() && lacking.iter().all(can_have)
        } else {
            lacking.iter().any(can_have)
        };
        assert!(!is_satisfiable, "{key} has {held:?} and waits for {lacking:?}, which can be had");
    }
    let waiting = state
        .services
        .iter()
        .filter(|(key, (_, spec))| wants(spec).len() > snapshot.addresses_of(key).count());
    assert_eq!(snapshot.pending_count(), waiting.count());
}

/// Asserts that a write without permission to evict takes no address from a Service that the write does not
/// change.
fn assert_who_stays_keeps(before: &Snapshot, after: &Snapshot) {
    for (key, (object, _)) in State::of(before).services {
        let same = after
            .service(&key)
            .is_some_and(|new| new.spec == object.spec && new.metadata.labels == object.metadata.labels);
        let now: BTreeSet<_> = after.addresses_of(&key).collect();
        let lost = before.addresses_of(&key).find(|address| same && !now.contains(address));
        assert_eq!(lost, None, "{key} stays, and loses an address");
    }
}

fn reread(snapshot: &Snapshot) -> Snapshot {
    let objects = Kind::ALL.into_iter().rev().flat_map(|kind| snapshot.list(kind, None, None)).cloned();
    Snapshot::from_objects(snapshot.revision(), objects)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f122_no_address_is_ever_allocated_twice_or_leaked(steps in prop::collection::vec(a_step(), 1..50)) {
        let mut cluster = Cluster::new();
        for step in steps {
            match step {
                Step::Write { applied, deleted, evict, is_answer_lost } => {
                    let applied = applied.iter().map(|value| Operation::Apply(object(value)));
                    let deleted = deleted.iter().map(|key| Operation::Delete {
                        key: ObjectKey::parse_store_key(key).unwrap(),
                        if_revision: None,
                    });
                    let is_repeatable = deleted.len() == 0;
                    let operations = applied.chain(deleted).collect();
                    let request = Request { operations, evict, ..Request::default() };
                    let was = cluster.snapshot.clone();
                    let written = cluster.write(&request);
                    if !evict {
                        assert_who_stays_keeps(&was, &cluster.snapshot);
                    }
                    if is_answer_lost && written.is_ok() {
                        let before = cluster.snapshot.clone();
                        let again = cluster.write(&request);
                        prop_assert_eq!(again.is_ok(), is_repeatable, "{:?}", again.err());
                        prop_assert_eq!(&cluster.snapshot, &before);
                    }
                }
                Step::Wait(seconds) => {
                    cluster.now += seconds;
                    cluster.write(&Request::default()).unwrap();
                    let ended = cluster.snapshot.next_quarantine_end();
                    prop_assert!(ended.is_none_or(|end| end.unix_seconds() > cluster.now));
                }
                Step::Restart => cluster.snapshot = reread(&cluster.snapshot),
            }
            check(&cluster.snapshot);
            prop_assert_eq!(&reread(&cluster.snapshot), &cluster.snapshot);
        }
    }
}

/// Returns the number of random histories that proptest generates; `make soak` runs more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}
