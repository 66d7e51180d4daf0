//! Authorization of writes: every object of a request is checked. If any is forbidden, the whole write is rejected
//! with all violations.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use model::{
    admission::admit::{Operation, Outcome, Request},
    cluster::{change::Action, snapshot::Snapshot},
    kinds::{
        http_route::HttpRouteRule,
        node::NodeSpec,
        resource::{Kind, Object, ObjectKey},
        service::{ServiceSpec, ServiceType},
    },
    primitives::{
        name::{Name, Namespace},
        violation::{Violation, ViolationCode},
    },
};

use super::{
    Identity,
    access::{Access, Grant, agent_of, forbidden},
    permission::{Subject, Verb},
};
use crate::base::error::Problem;

/// Maximum number of violations that a rejection lists. The check stops when it is reached.
const VIOLATIONS_MAX: usize = 500;

impl Access {
    /// Checks the caller's permissions for a write or dry run, before any other validation. `besides` is a
    /// further permission that the route requires on each object. If any is missing, returns a problem that
    /// lists the violations.
    pub(crate) fn check_write(
        &self,
        snapshot: &Snapshot,
        request: &Request,
        besides: Option<Verb>,
    ) -> Result<(), Problem> {
        if *self.identity() == Identity::Anyone {
            return Ok(());
        }
        let mut violations = Vec::new();
        let is_one = request.operations.len() == 1 && request.apply_set.is_none();
        for (index, operation) in request.operations.iter().enumerate() {
            let at = if is_one { String::new() } else { format!("/items/{index}") };
            let confirms = request.confirmed.then_some(Verb::Confirm);
            let more: Vec<Verb> = besides.into_iter().chain(confirms).collect();
            self.check_operation(snapshot, operation, &more, &at, &mut violations);
            if violations.len() >= VIOLATIONS_MAX {
                break;
            }
        }
        self.refuse_all(violations)
    }

    /// Checks that the caller may delete the objects that a write prunes (objects of the apply set that the
    /// request no longer contains); if not, returns a problem that lists the violations.
    pub(crate) fn check_outcomes(&self, outcomes: &[Outcome]) -> Result<(), Problem> {
        self.refuse_all(self.prunes_refused(outcomes))
    }

    /// Returns a violation for each kind and namespace in which the write prunes objects that the caller may
    /// not delete.
    pub(crate) fn prunes_refused(&self, outcomes: &[Outcome]) -> Vec<Violation> {
        let pruned = outcomes.iter().filter(|outcome| outcome.action == Action::Pruned);
        let keys = pruned.map(|outcome| outcome.object.key());
        let refused = keys.filter(|key| !self.may_object(Verb::Delete, key.kind, key.namespace.as_ref()));
        // The objects are not named, because the caller may not be allowed to see them.
        let kinds: BTreeSet<(Kind, Option<Namespace>)> =
            refused.map(|key| (key.kind, key.namespace)).collect();
        kinds.iter().map(|(kind, namespace)| lacks("", Verb::Delete, *kind, namespace.as_ref())).collect()
    }

    /// Returns a problem response (status 403) with all `violations`, unless the list is empty.
    pub(crate) fn refuse_all(&self, violations: Vec<Violation>) -> Result<(), Problem> {
        if violations.is_empty() {
            return Ok(());
        }
        let detail = match &violations[..] {
            [one] => format!("{self}: {}", one.message),
            several => format!("{self} lacks {} permissions for this; see `errors`", several.len()),
        };
        Err(forbidden(detail).errors(violations))
    }

    fn check_operation(
        &self,
        snapshot: &Snapshot,
        operation: &Operation,
        more: &[Verb],
        at: &str,
        violations: &mut Vec<Violation>,
    ) {
        // An apply needs both verbs, so that callers with only one of them do not learn if the object exists.
        let (verbs, key, object): (&[Verb], ObjectKey, Option<&Object>) = match operation {
            Operation::Create(object) => (&[Verb::Create], object.key(), Some(object)),
            Operation::Replace { object, .. } => (&[Verb::Update], object.key(), Some(object)),
            Operation::Apply(object) => (&[Verb::Create, Verb::Update], object.key(), Some(object)),
            Operation::Delete { key, .. } => (&[Verb::Delete], key.clone(), None),
            Operation::Restore { object, if_revision: Some(_) } => {
                (&[Verb::Update], object.key(), Some(object))
            }
            Operation::Restore { object, if_revision: None } => (&[Verb::Create], object.key(), Some(object)),
            Operation::SetAnnouncer { address, .. } => {
                let name = model::kinds::address::name_of(*address);
                (&[Verb::Move], ObjectKey { kind: Kind::Address, namespace: None, name }, None)
            }
            // Used by the server itself only.
            Operation::RetryPending { .. }
            | Operation::SetNodeLost { .. }
            | Operation::SetEndpointHealth { .. }
            | Operation::SetAttachments { .. }
            | Operation::SetIssuance { .. } => return,
        };
        if let Some(node) = agent_of(self.identity()) {
            if let Some(message) = refused_to_agent(node, operation) {
                violations.push(Violation::new(at, ViolationCode::Forbidden, message));
            }
            return;
        }
        let namespace = key.namespace.as_ref();
        let lacking: Vec<_> =
            verbs.iter().chain(more).filter(|verb| !self.may_object(**verb, key.kind, namespace)).collect();
        if !lacking.is_empty() {
            violations.extend(lacking.into_iter().map(|verb| lacks(at, *verb, key.kind, namespace)));
            return;
        }
        let Some(object) = object else { return };
        let subject = Subject::Object(key.kind);
        let allowing = self
            .grants()
            .iter()
            .filter(|grant| verbs.iter().all(|verb| grant.allows(*verb, subject, namespace)));
        // A single grant must allow all of it; otherwise the violations of the first grant are reported.
        let refusals: Vec<_> = allowing.map(|grant| limits(snapshot, grant, object)).collect();
        if !refusals.is_empty() && refusals.iter().all(|refused| !refused.is_empty()) {
            let first = refusals.into_iter().next().unwrap_or_default();
            violations.extend(first.into_iter().map(|(pointer, message)| {
                Violation::new(format!("{at}{pointer}"), ViolationCode::Forbidden, message)
            }));
        }
    }
}

fn lacks(at: &str, verb: Verb, kind: Kind, namespace: Option<&Namespace>) -> Violation {
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let message = format!("needs the permission to {verb} {kind}{place}");
    Violation::new(at, ViolationCode::Forbidden, message)
}

/// Returns the fields of an object with addresses or pools that the restrictions of a grant exclude, each as
/// JSON pointer and error message. Empty if the grant permits the object.
fn limits(snapshot: &Snapshot, grant: &Grant, object: &Object) -> Vec<(String, String)> {
    let (pools, ranges) = (grant.binding.pools.as_ref(), grant.binding.endpoint_ranges.as_ref());
    let of_service = object.as_service().zip(pools);
    let mut found = of_service.map(|(spec, pools)| service_limits(snapshot, pools, spec)).unwrap_or_default();
    if grant.binding.namespaces.is_some() && ranges.is_none() && has_expected_body(object) {
        let message = "must be absent: a token of single namespaces needs endpoint ranges for it, because the \
                       check would find text in answers of any address that the nodes reach";
        found.push(("/spec/healthCheck/http/expectBody".to_owned(), message.to_owned()));
    }
    if !grant.allows(Verb::Update, Subject::Object(Kind::HttpRoute), None) {
        found.extend(refusals_elsewhere(object));
    }
    if let Some(ranges) = ranges {
        found.extend(outside(ranges, object.spec.endpoint_addresses()));
    }
    found
}

/// Returns the refusals of an HttpRoute that apply at listeners of other namespaces too.
fn refusals_elsewhere(object: &Object) -> Vec<(String, String)> {
    let rules = object.as_http_route().map(|spec| &spec.rules[..]).unwrap_or_default();
    let is_wide = |rule: &HttpRouteRule| rule.refuse.as_ref().is_some_and(|refusal| refusal.all_listeners);
    let wide = rules.iter().enumerate().filter(|(_, rule)| is_wide(rule));
    let message = "must be false: a token of single namespaces cannot refuse requests at listeners of others";
    wide.map(|(index, _)| (format!("/spec/rules/{index}/refuse/allListeners"), message.to_owned())).collect()
}

fn has_expected_body(object: &Object) -> bool {
    let check = object.as_service().and_then(|spec| spec.health_check.as_ref());
    check.and_then(|check| check.http.as_ref()).is_some_and(|http| http.expect_body.is_some())
}

fn outside(ranges: &BTreeSet<IpNet>, addresses: Vec<(String, IpAddr)>) -> Vec<(String, String)> {
    let is_outside = |address: IpAddr| !ranges.iter().any(|range| range.contains(&address.to_canonical()));
    let allowed = || ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    addresses
        .into_iter()
        .filter(|(_, address)| is_outside(*address))
        .map(|(pointer, address)| (pointer, format!("must be in {}, not {address}", allowed())))
        .collect()
}

fn service_limits(snapshot: &Snapshot, pools: &BTreeSet<Name>, spec: &ServiceSpec) -> Vec<(String, String)> {
    let mut refused = Vec::new();
    let allowed = || pools.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    if !spec.external_ips.is_empty() {
        let message = "must be empty: an external IP belongs to no pool".to_owned();
        refused.push(("/spec/externalIPs".to_owned(), message));
    }
    let wanted = spec.load_balancer.as_ref();
    let named = wanted.and_then(|wanted| wanted.pool.as_ref());
    let addresses = wanted.map(|wanted| &wanted.addresses[..]).unwrap_or_default();
    let is_fit = named.is_some_and(|pool| pools.contains(pool));
    let asks = spec.service_type == ServiceType::LoadBalancer || !addresses.is_empty() || named.is_some();
    if asks && !is_fit {
        let message = format!("must name one of {}", allowed());
        refused.push(("/spec/loadBalancer/pool".to_owned(), message));
    }
    let pool = named.filter(|_| is_fit).and_then(|pool| snapshot.pool(pool));
    for (at, address) in addresses.iter().enumerate() {
        if !pool.is_some_and(|pool| pool.addresses.iter().any(|range| range.contains(*address))) {
            let message = "must be an address of the named pool".to_owned();
            refused.push((format!("/spec/loadBalancer/addresses/{at}"), message));
        }
    }
    refused
}

/// Returns the reason why the agent of `node` may not perform an operation, or `None` if it may. An agent may
/// only create the Node object of its own machine, with addresses, zone, workload CIDRs and labels. Admission
/// limits the values of these.
fn refused_to_agent(node: &Name, operation: &Operation) -> Option<String> {
    let Operation::Create(object) = operation else {
        return Some(format!(
            "is not allowed for the agent of node {node}: it may only register its own Node"
        ));
    };
    let Some(spec) = object.as_node() else {
        return Some(format!(
            "is not allowed for the agent of node {node}: it may only register its own Node"
        ));
    };
    if object.metadata.name != *node {
        return Some(format!("must be named {node}: an agent may only register its own Node"));
    }
    let NodeSpec { addresses, zone, workload_cidrs, .. } = spec.clone();
    let registered = NodeSpec { addresses, zone, workload_cidrs, ..NodeSpec::default() };
    (*spec != registered || !object.metadata.annotations.is_empty()).then(|| {
        "must only contain `addresses`, `zone`, `workloadCIDRs` and labels when an agent registers it"
            .to_owned()
    })
}
