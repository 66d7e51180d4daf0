//! A virtual server of the kernel (IPVS), however it was written down, as a Service, its EndpointSets and a pool with its
//! address.
//!
//! A virtual server is one address and one port, so it becomes a Service of its own: scheduler, affinity and endpoints are its
//! own as well. Those of one address share it by a key that is made of the address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    kinds::{
        address_pool::POOL_RANGES_MAX,
        endpoint_set::ENDPOINTS_MAX,
        metadata::Labels,
        resource::{API_VERSION, Kind},
        service::{AFFINITY_TIMEOUT_SECONDS_MAX, Protocol},
    },
    primitives::{name::Name, net::IpFamily},
};
use serde_json::{Map, Value, json};

use crate::draft::Draft;

/// Where what names no namespace goes.
const NAMESPACE: &str = "default";
/// The largest weight of an endpoint.
const WEIGHT_MAX: u32 = 65_535;
/// Real servers of one virtual server; ten full EndpointSets, and each is compared with all others.
const REAL_SERVERS_MAX: usize = 10_000;
/// The last port, where a virtual server is for all of them.
const PORT_MAX: u16 = 65_535;
/// The pool with the addresses that belong to no other.
const POOL: &str = "imported";

/// One address and port, and who answers there.
#[derive(Debug, Clone)]
pub(crate) struct VirtualServer {
    pub(crate) protocol: Protocol,
    pub(crate) address: IpAddr,
    /// `None`: all ports.
    pub(crate) port: Option<u16>,
    pub(crate) scheduler: Option<String>,
    /// As the API spells them.
    pub(crate) scheduler_flags: BTreeSet<&'static str>,
    pub(crate) affinity_seconds: Option<u32>,
    pub(crate) health_check: Option<Value>,
    pub(crate) real_servers: Vec<RealServer>,
}

/// Who answers.
#[derive(Debug, Clone)]
pub(crate) struct RealServer {
    pub(crate) address: IpAddr,
    /// `None`: the port that the client named.
    pub(crate) port: Option<u16>,
    pub(crate) weight: u32,
}

impl VirtualServer {
    /// A virtual server with nothing behind it.
    pub(crate) fn new(protocol: Protocol, address: IpAddr, port: Option<u16>) -> Self {
        Self {
            protocol,
            address,
            port,
            scheduler: None,
            scheduler_flags: BTreeSet::new(),
            affinity_seconds: None,
            health_check: None,
            real_servers: Vec::new(),
        }
    }

    /// The name of the Service: `tcp-192-0-2-10-80`.
    pub(crate) fn name(&self) -> String {
        let port = self.port.map_or_else(|| "all".to_owned(), |port| port.to_string());
        format!("{}-{}-{port}", self.protocol.as_str().to_ascii_lowercase(), dashed(self.address))
    }

    /// Whether it can have this real server.
    ///
    /// # Errors
    /// It is of another family, or there already, or one too many.
    pub(crate) fn check(&self, real: &RealServer) -> Result<(), String> {
        if IpFamily::of(real.address) != IpFamily::of(self.address) {
            return Err("it is of another IP family than the virtual server".to_owned());
        }
        if self.real_servers.iter().any(|other| other.address == real.address && other.port == real.port) {
            return Err("a second real server of this address and port".to_owned());
        }
        if self.real_servers.len() >= REAL_SERVERS_MAX {
            return Err(format!("more than {REAL_SERVERS_MAX} real servers"));
        }
        Ok(())
    }

    /// `service/tcp-192-0-2-10-80`.
    pub(crate) fn target(&self) -> String {
        format!("service/{}", self.name())
    }

    fn service(&self, pool: &Name) -> Value {
        let mut port = json!({ "protocol": self.protocol.as_str(), "port": self.port.unwrap_or(1) });
        if self.port.is_none() {
            port["endPort"] = json!(PORT_MAX);
        }
        let mut spec = json!({
            "type": "LoadBalancer",
            "ipFamilies": [IpFamily::of(self.address).as_str()],
            "ports": [port],
            "allocateLoadBalancerNodePorts": false,
            "loadBalancer": {
                "pool": pool,
                "addresses": [self.address],
                "sharingKey": format!("vip-{}", dashed(self.address)),
            },
        });
        if let Some(scheduler) = &self.scheduler {
            spec["scheduler"] = json!(scheduler);
        }
        if !self.scheduler_flags.is_empty() {
            spec["schedulerFlags"] = json!(self.scheduler_flags);
        }
        if let Some(seconds) = self.affinity_seconds {
            spec["sessionAffinity"] = json!("ClientIP");
            spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": seconds } });
        }
        if let Some(check) = &self.health_check {
            spec["healthCheck"] = check.clone();
        }
        object("Service", &self.name(), spec)
    }

    /// A set for each port that real servers listen at, and for each thousand of them.
    fn endpoint_sets(&self) -> Vec<Value> {
        let mut by_port: BTreeMap<Option<u16>, Vec<Value>> = BTreeMap::new();
        for RealServer { address, port, weight } in &self.real_servers {
            // Where a virtual server is for all ports, so are its real servers.
            let port = if self.port.is_none() { None } else { port.or(self.port) };
            let endpoint = json!({ "address": address, "weight": weight });
            by_port.entry(port).or_default().push(endpoint);
        }
        let mut sets = Vec::new();
        for (port, endpoints) in by_port {
            for (number, endpoints) in endpoints.chunks(ENDPOINTS_MAX).enumerate() {
                let mut name = self.name();
                if port != self.port {
                    name.push_str(&port.map_or_else(String::new, |port| format!("-{port}")));
                }
                if number > 0 {
                    name.push_str(&format!(".{}", number + 1));
                }
                let mut spec = json!({ "service": self.name(), "endpoints": endpoints });
                if let Some(port) = port {
                    spec["ports"] = json!([{ "protocol": self.protocol.as_str(), "port": port }]);
                }
                sets.push(object("EndpointSet", &name, spec));
            }
        }
        sets
    }

    /// Puts the objects into the draft. A second virtual server of an address and port is reported and left out.
    fn put(self, draft: &mut Draft, pool: &Name) {
        if draft.has(Kind::Service, NAMESPACE, &self.name()) {
            draft.report.ignored("", &format!("a second {}; it is left out", self.target()));
            return;
        }
        for set in self.endpoint_sets() {
            draft.add(Kind::EndpointSet, set);
        }
        draft.add(Kind::Service, self.service(pool));
    }
}

/// Puts virtual servers into the draft, and makes pools for the addresses that have none.
pub(crate) fn put_all(draft: &mut Draft, title: &str, servers: Vec<VirtualServer>) {
    let addresses = servers.iter().map(|server| server.address);
    let homeless: BTreeSet<IpAddr> = addresses.filter(|address| !draft.homes.contains_key(address)).collect();
    draft.report.begin(title);
    make_pools(draft, &homeless);
    let schedulers: BTreeSet<String> = servers.iter().filter_map(|server| server.scheduler.clone()).collect();
    for server in servers {
        if let Some(pool) = draft.homes.get(&server.address).cloned() {
            server.put(draft, &pool);
        }
    }
    if !schedulers.is_empty() {
        let all = schedulers.into_iter().collect::<Vec<_>>().join(", ");
        draft.report.note(
            "scheduler",
            &format!("{all}: needs Nodes in ipvs mode; what other modes have, docs/proxy-modes.md says"),
        );
    }
}

fn make_pools(draft: &mut Draft, addresses: &BTreeSet<IpAddr>) {
    let addresses: Vec<IpAddr> = addresses.iter().copied().collect();
    let mut number = 0_usize;
    for part in addresses.chunks(POOL_RANGES_MAX) {
        let name = loop {
            number += 1;
            let name = if number == 1 { POOL.to_owned() } else { format!("{POOL}-{number}") };
            // A pool of that name may have come with another input.
            match Name::parse(&name) {
                Ok(name) if !draft.pools.contains_key(&name) => break name,
                Ok(_) => {}
                Err(_) => return,
            }
        };
        draft.report.note(
            &format!("addresspool/{name}"),
            "holds the virtual addresses; other Services get none of them unless they ask",
        );
        draft.pools.insert(name.clone(), (Labels::default(), pool_spec(part)));
        draft.homes.extend(part.iter().map(|address| (*address, name.clone())));
    }
}

/// A pool that gives its addresses to those only who ask for them.
pub(crate) fn pool_spec(addresses: &[IpAddr]) -> Map<String, Value> {
    let ranges: Vec<String> = addresses.iter().map(|address| network_of(*address)).collect();
    Map::from_iter([("addresses".to_owned(), json!(ranges)), ("autoAssign".to_owned(), json!(false))])
}

fn network_of(address: IpAddr) -> String {
    format!("{address}/{}", IpFamily::of(address).bits())
}

/// An address as a part of a name.
fn dashed(address: IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    // `::` at the end leaves no letter or digit there.
    if text.ends_with('-') { format!("{text}0") } else { text }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// How long a client stays, within what a Service can have; the words say what differs.
pub(crate) fn affinity(seconds: u32) -> (u32, Option<String>) {
    let kept = seconds.clamp(1, AFFINITY_TIMEOUT_SECONDS_MAX);
    let words = format!("{kept} s: from 1 to {AFFINITY_TIMEOUT_SECONDS_MAX} can be had");
    (kept, (kept != seconds).then_some(words))
}

/// A weight within what an endpoint can have; the words say what differs.
pub(crate) fn weight(weight: u32) -> (u32, Option<String>) {
    let kept = weight.min(WEIGHT_MAX);
    (kept, (kept != weight).then_some(format!("{WEIGHT_MAX}, the largest that can be had")))
}

/// What becomes of a granularity of persistence: whether it changes nothing, and the words.
pub(crate) fn granularity(address: IpAddr, mask: &str) -> (bool, String) {
    let whole = match IpFamily::of(address) {
        IpFamily::V4 => ["255.255.255.255", "32"],
        IpFamily::V6 => ["128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    };
    if whole.contains(&mask) {
        (true, "each client address by itself, as here".to_owned())
    } else {
        (false, "each client address by itself: those of a network do not stay together".to_owned())
    }
}

/// What becomes of direct routing and tunnels.
pub(crate) const FORWARDED_OTHERWISE: &str = "packets are translated, and answers come back through the node: endpoints need neither the virtual address nor a tunnel, \
     and see the node's address, unless externalTrafficPolicy is Local";

/// What becomes of translated addresses.
pub(crate) const FORWARDED: &str = "the destination is translated, as there; endpoints see the node's address, unless externalTrafficPolicy is Local";
