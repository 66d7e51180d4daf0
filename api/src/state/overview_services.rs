//! Cache of each Service's part of the overview (the state of the cluster as `GET /v1/overview` returns it),
//! so that only the parts with changed inputs are recomputed.
//!
//! The part of a Service depends on its object, its compiled form and the progress of the nodes with that form.
//! With load balancer addresses or health checks it depends on further inputs, including time; such parts are
//! recomputed for each document. Every Service is visited for each document, but for most of them only the inputs
//! are compared.

use std::{cmp::Ordering, net::IpAddr, sync::Arc};

use model::{
    cluster::compiled::CompiledService,
    kinds::{
        resource::{Kind, Object, ServiceKey},
        service::{ServiceSpec, ServiceType},
    },
    observed::{
        rollup::AddressStanding,
        status::{ConditionType, EndpointCounts, NodeCounts, Phase},
    },
    primitives::name::{Name, Namespace},
    views::overview::{
        ServiceRow,
        memory::StatusFinding,
        nodes::covers_failures,
        services::{self, ServiceInput},
    },
};

use crate::state::overview_announced::{AnnouncementSummary, holds};
use crate::state::{
    compiled_set::Entry,
    object_view::{ObjectRenderer, View},
    published::Published,
};

/// Cached parts of the overview, one for each Service, in the order of Service keys.
#[derive(Default)]
pub(crate) struct ServiceRowCache(Vec<Share>);

/// Part of the overview that describes one Service.
pub(crate) struct Share {
    /// Inputs of the part; `None` if some inputs cannot be compared. The part is then recomputed for each
    /// document.
    basis: Option<Basis>,
    /// Row of the Service in the overview, before problems are added to it.
    pub(crate) row: Arc<ServiceRow>,
    /// Problems of the Service.
    pub(crate) findings: Vec<StatusFinding>,
    /// Number of endpoints of the Service by state.
    pub(crate) endpoints: EndpointCounts,
    /// True if the Service is ready.
    pub(crate) is_ready: bool,
}

/// Inputs from which a Service's part of the overview was computed. The references keep the objects alive, so
/// that comparing pointers is safe.
struct Basis {
    object: Arc<Object>,
    entry: Option<Arc<Entry<CompiledService>>>,
    /// Number of Nodes by their progress with the compiled form (the data that agents receive). Consecutive
    /// Services with equal numbers share one allocation.
    counts: Arc<NodeCounts>,
    /// True if a route names the Service.
    is_routed: bool,
}

/// Data from which each Service's part of the overview is computed.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    /// Published state combined with the reports of agents.
    pub(crate) view: &'a View<'a>,
    /// Renderer of the objects' statuses.
    pub(crate) renderer: &'a ObjectRenderer<'a>,
    /// Announcement states of all addresses.
    pub(crate) announced: &'a AnnouncementSummary,
}

/// Service that exists in the published state, with its compiled form (the data that agents receive).
struct Present<'a> {
    key: ServiceKey,
    object: &'a Arc<Object>,
    spec: &'a ServiceSpec,
    entry: Option<&'a Arc<Entry<CompiledService>>>,
}

impl ServiceRowCache {
    /// Returns each Service's part of the overview, and the number of parts that were recomputed.
    pub(crate) fn look(&mut self, look: Look<'_>) -> (&[Share], usize) {
        let published = look.view.published();
        // All are ordered by key, so they are merged in one pass.
        let mut before = std::mem::take(&mut self.0).into_iter().peekable();
        let mut forms = published.compiled.after(None).peekable();
        let mut last_counts = Arc::new(NodeCounts::default());
        let mut worked_out = 0;
        self.0.reserve(published.snapshot.count(Kind::Service));
        for object in published.snapshot.list(Kind::Service, None, None) {
            let (Some(spec), Some(namespace)) = (object.as_service(), &object.metadata.namespace) else {
                continue;
            };
            let key = ServiceKey { namespace: namespace.clone(), name: object.metadata.name.clone() };
            while before.next_if(|one| one.order(&key) == Ordering::Less).is_some() {}
            while forms.next_if(|(at, _)| **at < key).is_some() {}
            let old = before.next_if(|one| one.order(&key) == Ordering::Equal);
            let entry = forms.next_if(|(at, _)| **at == key).map(|(_, entry)| entry);
            let present = Present { key, object, spec, entry };
            let basis = present.basis(&look, &mut last_counts);
            let share = match old {
                Some(old) if is_same(old.basis.as_ref(), basis.as_ref()) => Some(old),
                Some(_) | None => {
                    worked_out += 1;
                    present.share(&look, basis)
                }
            };
            self.0.extend(share);
        }
        (&self.0, worked_out)
    }
}

impl Share {
    fn order(&self, key: &ServiceKey) -> Ordering {
        let of = |namespace: &Namespace, name: &Name| namespace.cmp(&key.namespace).then(name.cmp(&key.name));
        of(&self.row.namespace, &self.row.name)
    }
}

/// Returns true if the inputs of a Service's part of the overview are unchanged. Inputs that cannot be compared
/// (`None`) count as changed.
fn is_same(before: Option<&Basis>, now: Option<&Basis>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return false };
    let Basis { object, entry, counts, is_routed } = before;
    let is_same_form = match (entry, &now.entry) {
        (Some(before), Some(now)) => Arc::ptr_eq(before, now),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    is_same_form && Arc::ptr_eq(object, &now.object) && *counts == now.counts && *is_routed == now.is_routed
}

impl Present<'_> {
    /// Returns the inputs of the Service's part of the overview, or `None` if they cannot be compared.
    fn basis(&self, look: &Look<'_>, last_counts: &mut Arc<NodeCounts>) -> Option<Basis> {
        let form = self.entry.map(|entry| &entry.form);
        let snapshot = &look.view.published().snapshot;
        let is_checked = form.is_some_and(|form| look.renderer.has_health(form));
        let is_balanced = self.spec.service_type == ServiceType::LoadBalancer;
        if is_checked || is_balanced || snapshot.addresses_of(&self.key).next().is_some() {
            return None;
        }
        let counts = form.map(|form| look.renderer.progress(&self.key, form)).unwrap_or_default();
        // The text of a failure depends on other failures on the node.
        if counts.not_verified.values().any(|problem| problem.phase == Phase::Failed) {
            return None;
        }
        if **last_counts != counts {
            *last_counts = Arc::new(counts);
        }
        Some(Basis {
            object: Arc::clone(self.object),
            entry: self.entry.map(Arc::clone),
            counts: Arc::clone(last_counts),
            is_routed: snapshot.is_routed(&self.key),
        })
    }

    fn share(&self, look: &Look<'_>, basis: Option<Basis>) -> Option<Share> {
        let Present { key, object, spec, entry } = self;
        let Look { view, renderer, announced } = look;
        let published: &Published = view.published();
        let status = renderer.service(object)?;
        let is_covered_by_node =
            |node: &Name| view.table().view(node).is_some_and(|view| covers_failures(&view));
        let is_announced =
            |address: &IpAddr| announced.standing.get(address) == Some(&AddressStanding::Announced);
        let sight = ServiceInput {
            key,
            object,
            spec,
            status: &status,
            compiled: entry.map(|entry| &*entry.form),
            health: published.snapshot.endpoint_health(key),
            announced: status.load_balancer.ingress.iter().filter(|one| is_announced(&one.ip)).count(),
        };
        let mut findings = Vec::new();
        let row = Arc::new(services::judge(&sight, &is_covered_by_node, &mut findings));
        let is_ready = holds(&status.conditions, ConditionType::Ready);
        Some(Share { basis, row, findings, endpoints: status.endpoints, is_ready })
    }
}

#[cfg(test)]
mod tests;
