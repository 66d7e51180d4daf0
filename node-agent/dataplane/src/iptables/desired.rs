//! Desired state of the iptables backend: frontend owners and the chains of each Service. Contains no handles
//! of the kernel or of tools, so that a preview can change a copy of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    kinds::resource::ServiceKey,
    primitives::net::IpFamily,
    program::{Program, oracle::Networks},
    wire::report::FailureReason,
};

use super::{
    commit::ServiceChanges,
    layout::{self, ChainId, NamingLayout},
    mirror::IptablesMirror,
    plan::{self, DesiredRules},
    render::{self, Context, RenderedService},
    rule,
};
use crate::{
    DesiredState, Outcome, Scope,
    claims::{Claims, TouchedObjects},
};

/// Desired state of the iptables backend: the Services applied so far, and the chains that each one has in
/// the kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct DesiredChains {
    /// Claims on frontends, which determine the owning Service of each.
    pub(super) claims: Claims,
    /// Workload networks, masqueraded sources and node port addresses with which the rules were last rendered.
    pub(super) networks: Networks,
    /// Names of the chains that each Service has in the kernel, by address family.
    chains: BTreeMap<Arc<ServiceKey>, BTreeMap<IpFamily, BTreeSet<ChainId>>>,
}

/// Services and claimed objects that a pass (update of the kernel) affects.
#[derive(Debug, Default)]
pub(super) struct ScopedClaims {
    touched: TouchedObjects,
    pub(super) services: BTreeSet<Arc<ServiceKey>>,
    pub(super) everything: bool,
    /// Services that this backend cannot program, with the failure.
    pub(super) impossible: BTreeMap<ServiceKey, Outcome>,
}

impl DesiredChains {
    /// Applies the desired state of the Services in the scope of a pass (update of the kernel), and returns
    /// the Services and objects that the pass affects.
    pub(super) fn take_over(
        &mut self,
        families: &[IpFamily],
        desired: &DesiredState,
        scope: &Scope,
    ) -> ScopedClaims {
        let mut looked = ScopedClaims { everything: *scope == Scope::Everything, ..ScopedClaims::default() };
        let is_renamed = self.networks != desired.networks;
        self.networks.clone_from(&desired.networks);
        match scope {
            Scope::Everything => {
                self.claims = Claims::default();
                self.chains = BTreeMap::new();
                for service in desired.programs.keys() {
                    self.claim(families, desired, service, &mut looked);
                }
            }
            Scope::Services(keys) => {
                for service in keys {
                    self.claim(families, desired, service, &mut looked);
                }
                // The networks are part of the rules of many Services.
                let others = desired.programs.keys().filter(|key| is_renamed && !keys.contains(*key));
                for service in others {
                    if self.claims.program(service).is_some() {
                        self.claim(families, desired, service, &mut looked);
                    }
                }
            }
        }
        let claimants = looked.touched.frontends.keys().flat_map(|frontend| self.claims.claimants(frontend));
        looked.services.extend(claimants.cloned());
        looked
    }

    fn claim(
        &mut self,
        families: &[IpFamily],
        desired: &DesiredState,
        service: &ServiceKey,
        looked: &mut ScopedClaims,
    ) {
        let program = desired.programs.get(service).map(|desired| &desired.program);
        let checked = program.map(|program| check(families, service, program));
        let possible = program.filter(|_| matches!(checked, Some(Ok(()))));
        self.claims.replace(service, possible.cloned(), &mut looked.touched);
        if let Some(Err(message)) = checked {
            let outcome = Outcome::Failed { reason: FailureReason::Unsupported, message };
            looked.impossible.insert(service.clone(), outcome);
        }
        looked.services.insert(Arc::new(service.clone()));
    }

    /// Returns the wanted changes: one [`ServiceChanges`] for each Service that the pass (update of the
    /// kernel) affects, and another one for objects that belong to no Service.
    pub(super) fn parts(
        &self,
        layout: &NamingLayout,
        family: IpFamily,
        mirror: Option<&IptablesMirror>,
        looked: &ScopedClaims,
    ) -> Vec<ServiceChanges> {
        let context = self.context(layout, family);
        let mut parts: BTreeMap<Option<Arc<ServiceKey>>, ServiceChanges> = BTreeMap::new();
        let mut lines = BTreeMap::new();
        for service in &looked.services {
            let mut rendered = RenderedService::default();
            if let Some(program) = self.claims.program(service) {
                let has = |frontend: &_| self.claims.owner(frontend) == Some(service);
                rendered = render::service(&context, service, program, has);
            }
            let part =
                parts.entry(Some(Arc::clone(service))).or_insert_with(|| ServiceChanges::of(Some(service)));
            part.wanted.chains =
                rendered.chains.into_iter().map(|(chain, rules)| (chain, Some(rules))).collect();
            let before = self.chains.get(service).and_then(|families| families.get(&family));
            let gone = before.into_iter().flatten().filter(|chain| !part.wanted.chains.contains_key(chain));
            part.removals = gone.cloned().collect();
            lines.extend(rendered.lines);
        }
        for (frontend, noted) in &looked.touched.frontends {
            if frontend.destination.family() != family {
                continue;
            }
            let service = self.claims.owner(frontend).or(noted.as_ref());
            let part = parts.entry(service.cloned()).or_insert_with(|| ServiceChanges::of(service));
            let mut held = lines.remove(frontend).unwrap_or_default();
            for chain in render::dispatch_chains(layout, frontend) {
                let found = held.iter().position(|(other, _)| *other == chain);
                let lines = found.map(|index| held.swap_remove(index).1).unwrap_or_default();
                part.wanted.lines.insert((chain, rule::frontend_key(*frontend)), lines);
            }
        }
        for (address, service) in &looked.touched.virtual_addresses {
            if IpFamily::of(address) == family {
                let part =
                    parts.entry(service.clone()).or_insert_with(|| ServiceChanges::of(service.as_ref()));
                let (chain, key, line) = render::virtual_address(layout, address);
                let is_wanted = self.claims.wants_virtual_address(address);
                part.wanted.lines.insert((chain, key), if is_wanted { vec![line] } else { Vec::new() });
            }
        }
        let mut parts: Vec<_> = parts.into_values().collect();
        if let Some(mirror) = mirror.filter(|_| looked.everything) {
            parts.push(self.strays(layout, family, mirror, &parts));
        }
        parts
    }

    /// Returns the removal of the agent's chains and rules in the kernel that belong to no current Service.
    fn strays(
        &self,
        layout: &NamingLayout,
        family: IpFamily,
        mirror: &IptablesMirror,
        parts: &[ServiceChanges],
    ) -> ServiceChanges {
        let fixed = layout.fixed(family, &self.networks);
        let DesiredRules { chains, lines } =
            plan::strays(mirror, &fixed, parts.iter().map(|part| &part.wanted));
        let removals = chains.into_keys().collect();
        ServiceChanges { service: None, wanted: DesiredRules { chains: BTreeMap::new(), lines }, removals }
    }

    fn context(&self, layout: &NamingLayout, family: IpFamily) -> Context {
        Context {
            layout: *layout,
            family,
            workloads: layout::of_family(&self.networks.workloads, family).collect(),
            off_cluster: NamingLayout::off_cluster(family, &self.networks),
        }
    }

    /// Records the chains that each Service has in the kernel after a pass (update of the kernel). If the
    /// changes of a Service failed, its earlier chains stay in the record as well.
    pub(super) fn remember_chains(
        &mut self,
        family: IpFamily,
        parts: &[ServiceChanges],
        failed: &BTreeMap<Arc<ServiceKey>, Outcome>,
    ) {
        for ServiceChanges { service, wanted, removals } in parts {
            let Some(service) = service else { continue };
            let mut chains: BTreeSet<_> = wanted.chains.keys().cloned().collect();
            if failed.contains_key(service) {
                chains.extend(removals.iter().cloned());
            }
            self.chains.entry(Arc::clone(service)).or_default().insert(family, chains);
        }
    }

    /// Drops the records of Services that have no chain left in the kernel.
    pub(super) fn forget_without_chains(&mut self) {
        self.chains.retain(|_, families| families.values().any(|chains| !chains.is_empty()));
    }
}

fn check(families: &[IpFamily], service: &ServiceKey, program: &Program) -> Result<(), String> {
    let asked = program.frontends.keys().map(|frontend| frontend.destination.family());
    if let Some(family) = asked.into_iter().find(|family| !families.contains(family)) {
        return Err(format!("iptables cannot be used for {} here", family.as_str()));
    }
    render::check(service, program)
}
