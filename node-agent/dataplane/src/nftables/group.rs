//! Groups of frontends with common session affinity: the frontends of one Service port in one IP family, such as
//! its cluster IP, load balancer addresses and node port.
//!
//! The kernel stores the target of a source by group, so that a client has the same endpoint at every frontend of
//! the group. A map assigns the id of the group to each frontend. A group keeps the id that its frontends have in
//! the kernel; otherwise the id is a hash of its Service port, or the next number that no other group has. A
//! frontend with a port range is in a group of its own kind, because its targets keep the port of the client.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{name::Label, net::IpFamily},
    program::{Frontend, Route},
};

use super::{
    element::{GroupId, fnv1a},
    mirror::NftablesMirror,
};
use crate::claims::Claims;

/// Service port and IP family that the frontends of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    service: Arc<ServiceKey>,
    port_name: Option<Label>,
    protocol: Protocol,
    family: IpFamily,
    is_range: bool,
}

impl GroupKey {
    fn of(service: &Arc<ServiceKey>, frontend: &Frontend, route: &Route) -> Self {
        Self {
            service: Arc::clone(service),
            port_name: route.port_name.clone(),
            protocol: frontend.protocol,
            family: frontend.destination.family(),
            is_range: frontend.ports.single().is_none(),
        }
    }

    /// Returns the id of the group, unless another group has it.
    fn preferred(&self) -> GroupId {
        let port = self.port_name.as_ref().map_or("", Label::as_str);
        let protocol = self.protocol.number();
        GroupId(fnv1a(format!("{}:{port}:{protocol}:{}", self.service, self.is_range).as_bytes()))
    }
}

/// Assignment of ids to the groups that occur in one plan.
pub(super) struct Groups<'a> {
    mirror: &'a NftablesMirror,
    claims: &'a Claims,
    ids: BTreeMap<GroupKey, GroupId>,
    taken: BTreeSet<(IpFamily, GroupId)>,
}

impl<'a> Groups<'a> {
    pub(super) const fn new(mirror: &'a NftablesMirror, claims: &'a Claims) -> Self {
        Self { mirror, claims, ids: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// Returns the id of the group of a frontend that `service` owns.
    pub(super) fn id(
        &mut self,
        service: &Arc<ServiceKey>,
        frontend: &Frontend,
        route: &Route,
    ) -> Option<GroupId> {
        route.affinity_seconds?;
        let key = GroupKey::of(service, frontend, route);
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let program = self.claims.program(service)?;
        let is_member =
            |(frontend, route): &(&Frontend, &Route)| GroupKey::of(service, frontend, route) == key;
        let members: BTreeSet<_> = program.frontends.iter().filter(is_member).map(|(it, _)| *it).collect();
        let held = members.iter().filter_map(|member| self.mirror.frontends.get(member)?.affinity_group);
        let GroupId(preferred) = key.preferred();
        let is_free = |id: &GroupId| {
            let holders = self.mirror.affinity_groups.get(&(key.family, *id));
            !self.taken.contains(&(key.family, *id))
                && holders.is_none_or(|holders| holders.iter().all(|holder| members.contains(holder)))
        };
        let others = (0..=u32::MAX).map(|step| GroupId(preferred.wrapping_add(step)));
        let id = held.chain(others).find(is_free)?;
        self.taken.insert((key.family, id));
        self.ids.insert(key, id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use model::{
        primitives::quantity::Port,
        program::{Destination, Program, Role, Verdict},
    };

    use super::*;
    use crate::{claims::TouchedObjects, nftables::element::SetElement};

    fn frontend(destination: Destination, port: u16) -> Frontend {
        Frontend { destination, protocol: Protocol::Tcp, ports: Port::new(port).unwrap().into() }
    }

    fn frontends() -> [Frontend; 3] {
        let at = |ip: &str| Destination::Address(ip.parse().unwrap());
        let any = Destination::AnyLocal(IpFamily::V4);
        [frontend(at("10.96.0.1"), 80), frontend(any, 30_080), frontend(at("fd96::1"), 80)]
    }

    fn claims(services: &[(&str, &[Frontend])]) -> Claims {
        let route = Route { affinity_seconds: Some(60), ..Route::new(Role::ClusterIp, Verdict::Reject) };
        let mut claims = Claims::default();
        for (name, frontends) in services {
            let frontends = frontends.iter().map(|it| (*it, route.clone())).collect();
            let program = Program { frontends, ..Program::default() };
            let key = (*name).to_owned().try_into().unwrap();
            claims.replace(&key, Some(Arc::new(program)), &mut TouchedObjects::default());
        }
        claims
    }

    fn id(groups: &mut Groups<'_>, claims: &Claims, frontend: &Frontend) -> GroupId {
        let service = claims.owner(frontend).unwrap();
        groups.id(service, frontend, claims.route(frontend).unwrap()).unwrap()
    }

    #[test]
    fn frontends_of_a_port_have_one_id_that_no_other_group_has() {
        let (all, other) = (frontends(), frontend(Destination::Address("10.96.0.2".parse().unwrap()), 80));
        let claims = claims(&[("default/web", &all), ("default/other", &[other])]);
        let nothing = NftablesMirror::default();
        let mut groups = Groups::new(&nothing, &claims);
        let [cluster, node_port, _] = all.map(|frontend| id(&mut groups, &claims, &frontend));
        assert_eq!(cluster, node_port);
        assert_ne!(id(&mut groups, &claims, &other), cluster);
        // Another group has the preferred number in the kernel.
        let mut mirror = NftablesMirror::default();
        mirror.insert(&SetElement::AffinityGroup(other, cluster));
        let mut groups = Groups::new(&mirror, &claims);
        assert_eq!(id(&mut groups, &claims, &all[0]), GroupId(cluster.0.wrapping_add(1)));
        assert_eq!(id(&mut groups, &claims, &other), cluster, "it keeps its number");
        // A frontend that is added gets the number that the group has in the kernel.
        let mut mirror = NftablesMirror::default();
        mirror.insert(&SetElement::AffinityGroup(all[0], GroupId(7)));
        let mut groups = Groups::new(&mirror, &claims);
        assert_eq!(id(&mut groups, &claims, &all[1]), GroupId(7));
        mirror.remove(&SetElement::AffinityGroup(all[0], GroupId(7)));
        assert_eq!(mirror, NftablesMirror::default());
    }
}
