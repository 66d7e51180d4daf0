//! End-to-end check of a soak test: connects once to every address and port of every Service, and checks that
//! the backend that replies is one of the Service's endpoints in the API.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context, Result, ensure};
use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::service::{Protocol, TrafficPolicy},
};

use super::stage::Stage;
use crate::{
    host::{random::Random, wait},
    network::{
        client::{self, at},
        topology::node_addresses,
    },
};

/// Connection to one frontend (address and port of a Service), with the backends that may reply to it.
#[derive(Debug)]
struct TrafficQuestion {
    service: String,
    from: String,
    to: SocketAddr,
    is_udp: bool,
    /// Backends that may reply; empty if no reply is expected.
    answering: BTreeSet<String>,
}

/// Maximum number of wrong replies listed in an error.
const TOLD_MAX: usize = 8;

/// Connects to every frontend of every Service. Repeats a connection with a wrong result until the result is
/// right, because an address may be moving to another node. Returns the number of frontends checked.
///
/// # Errors
/// Returns the first wrong results on timeout.
pub(super) fn verify(stage: &Stage, random: &mut Random) -> Result<usize, String> {
    let questions = questions(stage, random).map_err(|error| format!("{error:#}"))?;
    let mut open: Vec<_> = questions.iter().collect();
    let right = wait::until("every address to reach the backends given by the API", || {
        let mut wrong = Vec::new();
        open.retain(|question| match ask(stage, question) {
            Ok(()) => false,
            Err(error) => {
                wrong.push(format!("{question}: {error:#}"));
                true
            }
        });
        let count = wrong.len();
        wrong.truncate(TOLD_MAX);
        ensure!(count == 0, "{count} wrong: {}", wrong.join("\n"));
        Ok(())
    });
    right.map(|()| questions.len()).map_err(|error| format!("{error:#}"))
}

impl fmt::Display for TrafficQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, from, to, is_udp, answering } = self;
        let protocol = if *is_udp { "UDP" } else { "TCP" };
        write!(f, "{service}: {protocol} from {from} to {to}, expected {answering:?}")
    }
}

fn ask(stage: &Stage, question: &TrafficQuestion) -> Result<()> {
    let from = stage.place(&question.from)?;
    let connect = if question.is_udp { client::udp } else { client::tcp };
    match connect(from, question.to) {
        Ok(reply) => ensure!(question.answering.contains(&reply.backend), "{} answered", reply.backend),
        Err(error) if question.answering.is_empty() => drop(error),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn questions(stage: &Stage, random: &mut Random) -> Result<Vec<TrafficQuestion>> {
    let backends = stage.backends();
    let mut questions = Vec::new();
    for service in compiled(stage)? {
        for port in &service.ports {
            let ports = frontends(&service, port, random);
            for (from, to, node, policy) in ports {
                questions.push(TrafficQuestion {
                    service: service.service.to_string(),
                    from,
                    to,
                    is_udp: port.protocol == Protocol::Udp,
                    answering: answering(&port.endpoints, to, node, policy, &backends)?,
                });
            }
        }
    }
    Ok(questions)
}

/// Returns all Services with the endpoints and settings that the server computes for the agents.
fn compiled(stage: &Stage) -> Result<Vec<CompiledService>> {
    let mut all = Vec::new();
    let mut path = "/v1/endpoints?limit=500".to_owned();
    loop {
        let page = stage.cluster.api.get_json(&path)?;
        for item in page["items"].as_array().context("the page has no items")? {
            all.push(serde_json::from_value(item.clone()).with_context(|| item.to_string())?);
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) => path = format!("/v1/endpoints?limit=500&continue={token}"),
            None => return Ok(all),
        }
    }
}

/// Returns a test connection for each frontend (address and port) of a Service port, as a tuple: client,
/// destination, number of the node whose endpoints count for policy Local (0 for policy Cluster), and traffic
/// policy.
fn frontends(
    service: &CompiledService,
    port: &CompiledPort,
    random: &mut Random,
) -> Vec<(String, SocketAddr, u8, TrafficPolicy)> {
    let number = 1 + u8::try_from(random.below(3)).unwrap_or(0);
    let own = port.port.get();
    let (inside, outside) = (service.internal_traffic_policy, service.external_traffic_policy);
    let cluster_ips =
        service.cluster_ips.iter().map(|ip| (format!("inside-{number}"), at(*ip, own), number, inside));
    let balanced = service.load_balancer_ips.iter().filter_map(|ip| {
        // Addresses of pools created by writers are not announced.
        let from = match ip {
            IpAddr::V4(v4) if v4.octets()[0] == 172 => "client",
            IpAddr::V4(v4) if v4.octets()[..2] == [10, 200] => "outside",
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        // Traffic arrives at a node with endpoints, if there is one.
        Some((from.to_owned(), at(*ip, own), 0, TrafficPolicy::Cluster))
    });
    let external = service.external_ips.iter().map(|ip| ("client".to_owned(), at(*ip, own), 1, outside));
    let node_port = port.node_port.map(|node_port| {
        ("client".to_owned(), at(node_addresses(number)[0], node_port.get()), number, outside)
    });
    cluster_ips.chain(balanced).chain(external).chain(node_port).collect()
}

/// Returns the names of the backends that may reply to a connection to `to` with this traffic policy. For
/// policy Local, only endpoints on the node `node` count.
fn answering(
    endpoints: &[CompiledEndpoint],
    to: SocketAddr,
    node: u8,
    policy: TrafficPolicy,
    backends: &BTreeMap<IpAddr, String>,
) -> Result<BTreeSet<String>> {
    let of_family = endpoints.iter().filter(|endpoint| endpoint.address.is_ipv4() == to.is_ipv4());
    let here = format!("node{node}");
    let near: Vec<_> = of_family
        .filter(|endpoint| {
            let is_here = endpoint.node.as_ref().is_some_and(|node| node.as_str() == here);
            policy == TrafficPolicy::Cluster || is_here
        })
        .collect();
    let is_in = |endpoint: &&&CompiledEndpoint| endpoint.maintenance.is_none();
    let usable: Vec<_> =
        near.iter().filter(is_in).filter(|endpoint| endpoint.ready && endpoint.weight.0 > 0).collect();
    // Without usable endpoints, endpoints that terminate but still serve are used.
    let serving = near.iter().filter(is_in).filter(|endpoint| endpoint.serving && endpoint.terminating);
    let chosen: Vec<_> = if usable.is_empty() { serving.collect() } else { usable };
    let name = |endpoint: &&&CompiledEndpoint| {
        backends.get(&endpoint.address).cloned().with_context(|| format!("{} is nobody's", endpoint.address))
    };
    chosen.iter().map(name).collect()
}
