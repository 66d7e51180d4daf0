//! Assignment of health checks to this node. Does no I/O.
//!
//! The cost is proportional to the change. If a Service changes, only its endpoints are assigned again. If
//! the set of checking nodes changes, the endpoints of all Services with a health check are assigned again.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    cluster::compiled::CompiledService,
    kinds::{endpoint_health::CheckKey, health_check::HealthCheck, resource::ServiceKey},
    observed::health,
    primitives::name::Name,
    wire::report::CHECKS_REPORTED_MAX,
};

/// Maximum number of endpoints of one Service that one node checks. Equal to the capacity of a report,
/// because a Service is reported as a whole.
pub const CHECKS_PER_SERVICE_MAX: usize = CHECKS_REPORTED_MAX;

/// Changes of the state from the control server that affect health checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Compiled Services (as received from the control server) that changed; `None` for a removed Service.
    pub services: BTreeMap<ServiceKey, Option<Arc<CompiledService>>>,
    /// Names of all Nodes that run checks; `None` if they have not changed.
    pub checkers: Option<BTreeSet<Name>>,
}

impl Changes {
    /// Returns true if neither a Service nor the set of checking Nodes has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { services, checkers } = self;
        services.is_empty() && checkers.is_none()
    }

    /// Merges the changes in `later`, which take precedence, into this set of changes.
    pub fn then(&mut self, later: Self) {
        let Self { services, checkers } = later;
        self.services.extend(services);
        if checkers.is_some() {
            self.checkers = checkers;
        }
    }
}

/// Change of the checks that this node runs for one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Service whose endpoints are checked.
    pub service: ServiceKey,
    /// Check configuration, or `None` if this node no longer checks the Service.
    pub check: Option<Arc<HealthCheck>>,
    /// True if the check configuration has changed, which affects the endpoints that are already checked.
    pub is_other_check: bool,
    /// Endpoints that this node starts to check.
    pub begin: BTreeSet<CheckKey>,
    /// Endpoints that this node stops checking.
    pub end: BTreeSet<CheckKey>,
    /// Number of endpoints assigned to this node that are not checked because they exceed
    /// [`CHECKS_PER_SERVICE_MAX`].
    pub left_out: usize,
}

/// Health checks assigned to this node, with the data on which the assignment is based.
#[derive(Debug)]
pub struct Plan {
    node: Name,
    checkers: BTreeSet<Name>,
    services: BTreeMap<ServiceKey, Part>,
}

#[derive(Debug)]
struct Part {
    service: Arc<CompiledService>,
    check: Arc<HealthCheck>,
    keys: BTreeSet<CheckKey>,
    left_out: usize,
}

impl Plan {
    /// Creates an assignment without checks for the Node with this name.
    #[must_use]
    pub const fn new(node: Name) -> Self {
        Self { node, checkers: BTreeSet::new(), services: BTreeMap::new() }
    }

    /// Applies changes and returns the resulting changes of this node's checks, by Service.
    pub fn follow(&mut self, changes: Changes) -> Vec<Delta> {
        let Changes { mut services, checkers } = changes;
        if let Some(checkers) = checkers.filter(|checkers| *checkers != self.checkers) {
            self.checkers = checkers;
            for (key, part) in &self.services {
                services.entry(key.clone()).or_insert_with(|| Some(Arc::clone(&part.service)));
            }
        }
        services.into_iter().filter_map(|(key, service)| self.look_at(key, service)).collect()
    }

    fn look_at(&mut self, key: ServiceKey, service: Option<Arc<CompiledService>>) -> Option<Delta> {
        let before = self.services.remove(&key);
        let check = service.as_ref().and_then(|service| health::check_of(service).map(Cow::into_owned));
        let (Some(service), Some(check)) = (service, check) else {
            // Most Services never had a check, and need no delta.
            let before = before?;
            let has_checks = !before.keys.is_empty();
            return has_checks.then(|| Delta {
                service: key,
                check: None,
                is_other_check: false,
                begin: BTreeSet::new(),
                end: before.keys,
                left_out: 0,
            });
        };
        let (keys, left_out) = self.own_checks(&service);
        let (old_check, old_keys, old_left_out) = match before {
            Some(Part { check, keys, left_out, service: _ }) => (Some(check), keys, left_out),
            None => (None, BTreeSet::new(), 0),
        };
        let is_other_check = old_check.as_deref().is_some_and(|old| *old != check);
        let check = old_check.filter(|_| !is_other_check).unwrap_or_else(|| Arc::new(check));
        let delta = Delta {
            service: key.clone(),
            check: (!keys.is_empty()).then(|| Arc::clone(&check)),
            is_other_check,
            begin: &keys - &old_keys,
            end: &old_keys - &keys,
            left_out,
        };
        let is_other_check = is_other_check && !keys.is_empty();
        self.services.insert(key, Part { service, check, keys, left_out });
        let is_different = is_other_check
            || !delta.begin.is_empty()
            || !delta.end.is_empty()
            || delta.left_out != old_left_out;
        is_different.then_some(delta)
    }

    fn own_checks(&self, service: &CompiledService) -> (BTreeSet<CheckKey>, usize) {
        let is_own = |(key, own): &(CheckKey, Option<Name>)| {
            health::checkers(key, own.as_ref(), &self.checkers).contains(&self.node)
        };
        let mut own = health::checks(service).into_iter().filter(is_own).map(|(key, _)| key);
        let keys: BTreeSet<_> = own.by_ref().take(CHECKS_PER_SERVICE_MAX).collect();
        (keys, own.count())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use model::{
        cluster::compiled::{CompiledEndpoint, CompiledPort},
        kinds::service::Protocol,
        primitives::quantity::{Port, Weight},
    };

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn service_key(text: &str) -> ServiceKey {
        serde_json::from_value(text.into()).unwrap()
    }

    fn names(texts: &[&str]) -> BTreeSet<Name> {
        texts.iter().map(|text| name(text)).collect()
    }

    fn check() -> HealthCheck {
        serde_json::from_value(serde_json::json!({"type": "Tcp"})).unwrap()
    }

    fn endpoint(address: &str, node: Option<&str>) -> CompiledEndpoint {
        CompiledEndpoint {
            address: address.parse().unwrap(),
            port: Port::new(80).unwrap(),
            node: node.map(name),
            zone: None,
            weight: Weight::default(),
            ready: true,
            serving: true,
            terminating: false,
            maintenance: None,
            node_lost: false,
            checked_by_source: false,
        }
    }

    fn service(check: Option<HealthCheck>, endpoints: Vec<CompiledEndpoint>) -> Arc<CompiledService> {
        let mut service = CompiledService::new(service_key("default/web"));
        service.health_check = check.map(Box::new);
        service.ports = vec![CompiledPort {
            name: None,
            protocol: Protocol::Tcp,
            port: Port::new(80).unwrap(),
            end_port: None,
            node_port: None,
            endpoints,
        }];
        Arc::new(service)
    }

    fn services(service: Option<Arc<CompiledService>>) -> Changes {
        Changes { services: BTreeMap::from([(service_key("default/web"), service)]), checkers: None }
    }

    fn plan(checkers: &[&str]) -> Plan {
        let mut plan = Plan::new(name("a"));
        plan.follow(Changes { checkers: Some(names(checkers)), ..Changes::default() });
        plan
    }

    fn addresses(keys: &BTreeSet<CheckKey>) -> Vec<String> {
        keys.iter().map(|key| key.address.to_string()).collect()
    }

    #[test]
    fn a_node_checks_its_own_endpoints_and_its_share_of_those_that_have_no_node() {
        let endpoints = vec![
            endpoint("10.0.0.1", Some("a")),
            endpoint("10.0.0.2", Some("b")),
            endpoint("10.0.0.3", Some("without-agent")),
            endpoint("10.0.0.4", None),
        ];
        let deltas = plan(&["a", "b"]).follow(services(Some(service(Some(check()), endpoints))));
        assert_eq!(addresses(&deltas[0].begin), ["10.0.0.1", "10.0.0.3", "10.0.0.4"]);
        assert_eq!((deltas.len(), deltas[0].end.len(), deltas[0].left_out), (1, 0, 0));
    }

    #[test]
    fn each_endpoint_without_a_node_has_as_many_checkers_as_there_are_to_be() {
        let many: Vec<_> = (1..=40).map(|number| format!("n{number}")).collect();
        let checkers: BTreeSet<_> = many.iter().map(|text| name(text)).collect();
        let endpoints: Vec<_> =
            (1..=50_u8).map(|number| endpoint(&format!("10.0.1.{number}"), None)).collect();
        let mut total = 0;
        for node in &checkers {
            let mut plan = Plan::new(node.clone());
            let mut changes = services(Some(service(Some(check()), endpoints.clone())));
            changes.checkers = Some(checkers.clone());
            total += plan.follow(changes).iter().map(|delta| delta.begin.len()).sum::<usize>();
        }
        assert_eq!(total, 50 * health::CHECKERS);
    }

    #[test]
    fn what_leaves_is_not_checked_any_longer() {
        let mut plan = plan(&["a"]);
        let mut leaving = endpoint("10.0.0.2", Some("a"));
        let both = vec![endpoint("10.0.0.1", Some("a")), leaving.clone()];
        plan.follow(services(Some(service(Some(check()), both))));
        leaving.terminating = true;
        let both = vec![endpoint("10.0.0.1", Some("a")), leaving];
        let deltas = plan.follow(services(Some(service(Some(check()), both))));
        assert_eq!((addresses(&deltas[0].end), deltas[0].begin.len()), (vec!["10.0.0.2".to_owned()], 0));
        let deltas = plan.follow(services(None));
        assert_eq!(
            (addresses(&deltas[0].end), deltas[0].check.is_none()),
            (vec!["10.0.0.1".to_owned()], true)
        );
        assert_eq!(plan.follow(services(None)), []);
    }

    #[test]
    fn another_check_is_told_and_one_that_stays_is_not() {
        let mut plan = plan(&["a"]);
        let endpoints = vec![endpoint("10.0.0.1", Some("a"))];
        plan.follow(services(Some(service(Some(check()), endpoints.clone()))));
        let same = services(Some(service(Some(check()), endpoints.clone())));
        assert_eq!(plan.follow(same), []);
        let other = HealthCheck { interval_ms: 700, ..check() };
        let deltas = plan.follow(services(Some(service(Some(other.clone()), endpoints.clone()))));
        assert_eq!((deltas[0].is_other_check, deltas[0].begin.len()), (true, 0));
        assert_eq!(deltas[0].check.as_deref(), Some(&other));
        let deltas = plan.follow(services(Some(service(None, endpoints))));
        assert_eq!((deltas[0].check.is_none(), deltas[0].end.len()), (true, 1));
    }

    #[test]
    fn endpoints_on_lost_nodes_are_checked_by_others_even_without_a_health_check() {
        let mut plan = plan(&["a", "c"]);
        let lost = CompiledEndpoint { node_lost: true, ..endpoint("10.0.0.2", Some("b")) };
        let endpoints = vec![endpoint("10.0.0.1", Some("a")), lost];
        let deltas = plan.follow(services(Some(service(None, endpoints.clone()))));
        assert_eq!((deltas.len(), addresses(&deltas[0].begin)), (1, vec!["10.0.0.2".to_owned()]));
        assert_eq!(deltas[0].check.as_deref(), Some(&health::suspicion_check()));
        let back = endpoints.into_iter().map(|one| CompiledEndpoint { node_lost: false, ..one }).collect();
        let deltas = plan.follow(services(Some(service(None, back))));
        assert_eq!(
            (deltas[0].check.is_none(), addresses(&deltas[0].end)),
            (true, vec!["10.0.0.2".to_owned()])
        );
    }

    #[test]
    fn other_checkers_look_at_all_services_again() {
        let mut plan = plan(&["b"]);
        let endpoints = vec![endpoint("10.0.0.1", Some("a")), endpoint("10.0.0.2", Some("b"))];
        assert_eq!(plan.follow(services(Some(service(Some(check()), endpoints)))), []);
        let checkers = |texts: &[&str]| Changes { checkers: Some(names(texts)), ..Changes::default() };
        let deltas = plan.follow(checkers(&["a", "b"]));
        assert_eq!(addresses(&deltas[0].begin), ["10.0.0.1"]);
        // The agent of the other node is lost, so its endpoints are assigned to all checkers.
        assert_eq!(addresses(&plan.follow(checkers(&["a"]))[0].begin), ["10.0.0.2"]);
        assert_eq!(plan.follow(checkers(&["a"])), []);
        assert_eq!(plan.follow(checkers(&[]))[0].end.len(), 2);
    }

    #[test]
    fn a_service_with_too_many_endpoints_is_checked_as_far_as_it_can_be_reported() {
        let count = u32::try_from(CHECKS_PER_SERVICE_MAX).unwrap() + 3;
        let mut endpoints = Vec::new();
        for number in 0..count {
            let address = IpAddr::V4((0x0a00_0000 + number).into());
            endpoints.push(CompiledEndpoint { address, ..endpoint("10.0.0.1", Some("a")) });
        }
        let deltas = plan(&["a"]).follow(services(Some(service(Some(check()), endpoints))));
        assert_eq!((deltas[0].begin.len(), deltas[0].left_out), (CHECKS_PER_SERVICE_MAX, 3));
    }

    #[test]
    fn changes_that_wait_are_squashed() {
        let mut changes = services(Some(service(None, vec![])));
        assert!(!changes.is_empty());
        changes.then(services(None));
        changes.then(Changes { checkers: Some(names(&["a"])), ..Changes::default() });
        assert_eq!(changes.services.into_values().collect::<Vec<_>>(), [None]);
        assert_eq!(changes.checkers, Some(names(&["a"])));
    }
}
