//! Virtual server of the kernel (IPVS). The importer translates it to a Service, the Service's EndpointSets,
//! and a pool with the address.
//!
//! A virtual server has one address and port, so each becomes a separate Service with its own scheduler,
//! affinity and endpoints. Services with the same address may share it, because they get the same sharing
//! key, which is derived from the address.

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

/// Namespace of the created objects.
const NAMESPACE: &str = "default";
/// Maximum weight of an endpoint in the API; larger IPVS weights are reduced to it.
const WEIGHT_MAX: u32 = 65_535;
/// Maximum number of real servers per virtual server, which fill ten EndpointSets. Limited because each one
/// is compared with all others to find duplicates.
const REAL_SERVERS_MAX: usize = 10_000;
/// Last port covered by a virtual server for all ports.
const PORT_MAX: u16 = 65_535;
/// Name of the pool that contains the virtual servers' addresses that are in no other pool.
const POOL: &str = "imported";

/// Virtual server of IPVS: protocol, address, port, scheduling settings and real servers.
#[derive(Debug, Clone)]
pub(crate) struct VirtualServer {
    pub(crate) protocol: Protocol,
    pub(crate) address: IpAddr,
    /// Port; `None` means all ports.
    pub(crate) port: Option<u16>,
    pub(crate) scheduler: Option<String>,
    /// IPVS scheduler flags in the API's spelling.
    pub(crate) scheduler_flags: BTreeSet<&'static str>,
    pub(crate) affinity_seconds: Option<u32>,
    pub(crate) health_check: Option<Value>,
    pub(crate) real_servers: Vec<RealServer>,
}

/// Real server of an IPVS virtual server, which becomes an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct RealServer {
    pub(crate) address: IpAddr,
    /// Port; `None` means the client's destination port.
    pub(crate) port: Option<u16>,
    pub(crate) weight: u32,
}

impl VirtualServer {
    /// Creates a virtual server without real servers.
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

    /// Returns the name of the Service that the virtual server becomes, such as `tcp-192-0-2-10-80`.
    pub(crate) fn name(&self) -> String {
        let port = self.port.map_or_else(|| "all".to_owned(), |port| port.to_string());
        format!("{}-{}-{port}", self.protocol.as_str().to_ascii_lowercase(), dashed(self.address))
    }

    /// Checks that a real server can be added to the virtual server.
    ///
    /// # Errors
    /// Returns an error if the real server has a different IP family, is a duplicate, or exceeds the limit of
    /// real servers.
    pub(crate) fn check(&self, real: &RealServer) -> Result<(), String> {
        if IpFamily::of(real.address) != IpFamily::of(self.address) {
            return Err("the IP family differs from that of the virtual server".to_owned());
        }
        if self.real_servers.iter().any(|other| other.address == real.address && other.port == real.port) {
            return Err("duplicate real server with this address and port".to_owned());
        }
        if self.real_servers.len() >= REAL_SERVERS_MAX {
            return Err(format!("more than {REAL_SERVERS_MAX} real servers"));
        }
        Ok(())
    }

    /// Returns the display name of the Service that the virtual server becomes, such as
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

    /// Returns the EndpointSets for the real servers: one for each port that the real servers use, or several
    /// if a set would exceed the size limit.
    fn endpoint_sets(&self) -> Vec<Value> {
        let mut by_port: BTreeMap<Option<u16>, Vec<Value>> = BTreeMap::new();
        for RealServer { address, port, weight } in &self.real_servers {
            // Real servers of a virtual server for all ports keep the client's port.
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

    /// Adds the Service and EndpointSets of the virtual server to the draft. A duplicate virtual server is
    /// reported and left out.
    fn put(self, draft: &mut Draft, pool: &Name) {
        if draft.has(Kind::Service, NAMESPACE, &self.name()) {
            draft.report.ignored("", &format!("duplicate {}; it is left out", self.target()));
            return;
        }
        for set in self.endpoint_sets() {
            draft.add(Kind::EndpointSet, set);
        }
        draft.add(Kind::Service, self.service(pool));
    }
}

/// Adds the objects of virtual servers to the draft, and creates a pool for the addresses that are in no
/// pool.
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
            &format!(
                "{all}: requires Nodes in ipvs mode; for other modes see docs/explanation/proxy-modes.md"
            ),
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
            // Another input may contain a pool of that name.
            match Name::parse(&name) {
                Ok(name) if !draft.pools.contains_key(&name) => break name,
                Ok(_) => {}
                Err(_) => return,
            }
        };
        draft.report.note(
            &format!("addresspool/{name}"),
            "contains the virtual addresses; they are assigned only on request",
        );
        draft.pools.insert(name.clone(), (Labels::default(), pool_spec(part)));
        draft.homes.extend(part.iter().map(|address| (*address, name.clone())));
    }
}

/// Returns the spec of an address pool with `autoAssign: false`: Services get these addresses only if they
/// request the address or the pool.
pub(crate) fn pool_spec(addresses: &[IpAddr]) -> Map<String, Value> {
    let ranges: Vec<String> = addresses.iter().map(|address| network_of(*address)).collect();
    Map::from_iter([("addresses".to_owned(), json!(ranges)), ("autoAssign".to_owned(), json!(false))])
}

fn network_of(address: IpAddr) -> String {
    format!("{address}/{}", IpFamily::of(address).bits())
}

/// Formats an address for use in object names, which allow dashes but no colons.
fn dashed(address: IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    // A trailing `::` would end the name with a hyphen.
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

/// Limits an affinity timeout in seconds to the range of a Service. If this changes the value, also returns
/// text for the report.
pub(crate) fn affinity(seconds: u32) -> (u32, Option<String>) {
    let kept = seconds.clamp(1, AFFINITY_TIMEOUT_SECONDS_MAX);
    let words = format!("{kept} s; the range is 1 to {AFFINITY_TIMEOUT_SECONDS_MAX}");
    (kept, (kept != seconds).then_some(words))
}

/// Limits the weight of a real server to the range of an endpoint. If this changes the value, also returns
/// text for the report.
pub(crate) fn weight(weight: u32) -> (u32, Option<String>) {
    let kept = weight.min(WEIGHT_MAX);
    (kept, (kept != weight).then_some(format!("{WEIGHT_MAX}, the maximum")))
}

/// Describes the translation of a persistence granularity (netmask) to affinity by client address. Returns
/// true if both have the same effect, and text for the report.
pub(crate) fn granularity(address: IpAddr, mask: &str) -> (bool, String) {
    let whole = match IpFamily::of(address) {
        IpFamily::V4 => ["255.255.255.255", "32"],
        IpFamily::V6 => ["128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    };
    if whole.contains(&mask) {
        (true, "per client address, as here".to_owned())
    } else {
        (false, "per client address; clients of the same network are not kept together".to_owned())
    }
}

/// Report text for real servers with direct routing or tunneling as their forwarding method.
pub(crate) const FORWARDED_OTHERWISE: &str = "packets are translated, and replies return through the \
                                              node: endpoints need neither the virtual address nor a \
                                              tunnel, and see the node's address, unless \
                                              externalTrafficPolicy is Local";

/// Report text for real servers with masquerading (NAT) as their forwarding method.
pub(crate) const FORWARDED: &str = "the destination is translated, as in IPVS; endpoints see the node's \
                                    address, unless externalTrafficPolicy is Local";
