//! Preview of a pass (update of the kernel): computes the same plan as the pass and applies it to a copy of
//! the mirror (the kernel objects as last read or written).

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use model::{
    kinds::resource::ServiceKey,
    primitives::net::IpFamily,
    wire::plan::{LineChange, LineFate},
};

use super::{
    IpvsBackend,
    commit::failed,
    desired::{DirtyObjects, Wants},
    drain, listing,
    mirror::{DummyLink, IpvsMirror},
    plan::{self, Plan},
    rules,
    server::{Destination, Socket},
    sets::{IpsetElement, Set, SetKind},
    sysctls,
};
use crate::{DesiredState, KernelError, Scope};

/// Kernel state as it would be after the pass (update of the kernel), with its draining destinations.
struct Future {
    mirror: IpvsMirror,
    wants: Wants,
    draining: BTreeMap<(Socket, Destination), Option<Instant>>,
}

impl IpvsBackend {
    /// Returns the lines of the tools' listings that a pass (update of the kernel) would remove and add.
    /// Reads the kernel to find connections of removed targets, and rules that differ.
    pub(super) fn previewed(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Vec<LineChange>, KernelError> {
        let is_fresh = self.mirror.is_none();
        let before = match &self.mirror {
            Some(mirror) => mirror.clone(),
            None => self.read().map_err(failed("reading our part of the kernel"))?,
        };
        let (wants, draining) = (self.wants.clone(), self.draining.clone());
        let mut future = Future { mirror: before.clone(), wants, draining };
        let everything = is_fresh || *scope == Scope::Everything;
        let mut changes = self.preview_structure(everything, &mut future.mirror)?;
        let mut touched = DirtyObjects::default();
        let _taken = future.wants.take_over(desired, scope, &future.mirror, &mut touched);
        let in_the_way = self.preview_plan(&mut future, &touched)?;
        // Services whose socket belongs to another program are withdrawn as a whole.
        if !in_the_way.is_empty() {
            let mut again = DirtyObjects::default();
            for service in &in_the_way {
                future.wants.replace(service, None, &mut again);
            }
            self.preview_plan(&mut future, &again)?;
        }
        changes.extend(listing::differences(&before, &future.mirror, self.options.naming));
        Ok(changes)
    }

    /// Applies the objects that do not depend on Services (sets, link, sysctls, rules) to a copy of the
    /// mirror (the kernel objects as last read or written). Returns the changed lines of sysctls and rules,
    /// which the mirror does not contain.
    fn preview_structure(
        &self,
        everything: bool,
        mirror: &mut IpvsMirror,
    ) -> Result<Vec<LineChange>, KernelError> {
        let mut changes = Vec::new();
        for set in Set::all() {
            mirror.sets.entry(set).or_insert(0);
        }
        if everything {
            changes.extend(self.preview_sysctls(mirror).map_err(failed("reading a sysctl"))?);
        }
        mirror.link.get_or_insert_default().is_up = true;
        for family in IpFamily::ALL {
            if mirror.rules.insert(family, true) != Some(true) {
                changes.extend(self.preview_rules(family).map_err(failed("reading rules"))?);
            }
        }
        Ok(changes)
    }

    fn preview_sysctls(&self, mirror: &mut IpvsMirror) -> io::Result<Vec<LineChange>> {
        let wanted = sysctls::wanted(self.options.strict_arp);
        let superfluous = mirror.elements.extract_if(.., |element| sysctls::is_superfluous(element, &wanted));
        let mut changed: Vec<_> = superfluous.filter_map(|element| sysctls::restored(&element)).collect();
        mirror
            .elements
            .extend(self.former_sysctls.iter().filter(|element| !sysctls::is_superfluous(element, &wanted)));
        for sysctl in wanted.into_iter().filter(|sysctl| !sysctl.is_set()) {
            let former = sysctl.former(|element| mirror.elements.contains(element))?;
            mirror.elements.extend(former);
            changed.push(sysctl.changed()?);
        }
        let line = |change, line| LineChange { change, place: "sysctl".to_owned(), line };
        let lines = changed
            .into_iter()
            .flat_map(|(gone, come)| [line(LineFate::Removed, gone), line(LineFate::Added, come)]);
        Ok(lines.collect())
    }

    fn preview_rules(&self, family: IpFamily) -> io::Result<Vec<LineChange>> {
        let mut changes = Vec::new();
        for table in rules::tables(family, self.rule_options()) {
            let listing = self.iptables.list(family, table.name)?;
            changes.extend(rules::differences(family, &listing, &table));
        }
        Ok(changes)
    }

    /// Plans the objects affected by the pass, and applies the plan to the copy of the mirror (kernel objects
    /// in memory). Returns the Services that fail because another program has a virtual server at the same
    /// address and port.
    fn preview_plan(
        &mut self,
        future: &mut Future,
        touched: &DirtyObjects,
    ) -> Result<BTreeSet<Arc<ServiceKey>>, KernelError> {
        let plan = plan::plan(&future.mirror, &future.wants, touched);
        carry_out(&plan, &mut future.mirror);
        for (socket, removal) in &plan.draining {
            let loads = self.read_loads(socket).map_err(failed("reading destinations"))?;
            let (now, wanted) = (Instant::now(), future.wants.entry(socket).server);
            let deadlines = drain::Deadlines {
                of_all: drain::deadline(*removal, now),
                of_each: future.wants.leaving(socket),
            };
            let (due, waits) =
                drain::due(&mut future.draining, socket, wanted.as_ref(), &loads, &deadlines, now);
            if let Some(server) = future.mirror.servers.get_mut(socket) {
                server.destinations.retain(|destination, _| !due.contains(destination));
            }
            if wanted.is_none() && !waits {
                future.mirror.servers.remove(socket);
                future.mirror.elements.remove(&IpsetElement::of_socket(SetKind::Servers, *socket));
                release(future, [socket.address].into_iter());
            }
        }
        release(future, touched.addresses.keys().copied());
        Ok(plan.foreign.into_iter().map(|(service, _)| service).collect())
    }
}

/// Updates the copy of the kernel objects in memory (mirror) as if the kernel accepted the whole plan.
fn carry_out(plan: &Plan, mirror: &mut IpvsMirror) {
    mirror.elements.extend(plan.additions.iter().map(|(_, element)| *element));
    let DummyLink { addresses, .. } = mirror.link.get_or_insert_default();
    addresses.extend(plan.addresses_added.iter().map(|(_, address)| *address));
    for (_, command) in &plan.commands {
        mirror.absorb(command);
    }
    for (_, element) in &plan.removals {
        mirror.elements.remove(element);
    }
}

fn release(future: &mut Future, addresses: impl Iterator<Item = IpAddr>) {
    let idle = plan::idle_addresses(&future.mirror, &future.wants, addresses);
    if let Some(link) = &mut future.mirror.link {
        link.addresses.retain(|address| !idle.contains(address));
    }
}
