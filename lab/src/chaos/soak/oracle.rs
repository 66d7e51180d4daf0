//! Whether every address of every Service leads where the API says: one connection each, from where such a client is.

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

/// A frontend, who asks it, and who may answer.
#[derive(Debug)]
struct Question {
    service: String,
    from: String,
    to: SocketAddr,
    is_udp: bool,
    /// Empty: nobody.
    answering: BTreeSet<String>,
}

/// Wrong answers that are told one by one.
const TOLD_MAX: usize = 8;

/// Asks everything once, and what was answered wrongly again until it is right: an address may be on its way to another node. Answers
/// how many frontends were asked.
pub(super) fn verify(stage: &Stage, random: &mut Random) -> Result<usize, String> {
    let questions = questions(stage, random).map_err(|error| format!("{error:#}"))?;
    let mut open: Vec<_> = questions.iter().collect();
    let right = wait::until("every address to lead where the API says", || {
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

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, from, to, is_udp, answering } = self;
        let protocol = if *is_udp { "UDP" } else { "TCP" };
        write!(f, "{service}: {protocol} from {from} to {to}, where {answering:?} may answer")
    }
}

fn ask(stage: &Stage, question: &Question) -> Result<()> {
    let from = stage.place(&question.from)?;
    let connect = if question.is_udp { client::udp } else { client::tcp };
    match connect(from, question.to) {
        Ok(reply) => ensure!(question.answering.contains(&reply.backend), "{} answered", reply.backend),
        Err(error) if question.answering.is_empty() => drop(error),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn questions(stage: &Stage, random: &mut Random) -> Result<Vec<Question>> {
    let backends = stage.backends();
    let mut questions = Vec::new();
    for service in compiled(stage)? {
        for port in &service.ports {
            let ports = frontends(&service, port, random);
            for (from, to, node, policy) in ports {
                questions.push(Question {
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

/// Everything that agents are told.
fn compiled(stage: &Stage) -> Result<Vec<CompiledService>> {
    let mut all = Vec::new();
    let mut path = "/v1/endpoints?limit=500".to_owned();
    loop {
        let page = stage.cluster.api.get_json(&path)?;
        for item in page["items"].as_array().context("a page without items")? {
            all.push(serde_json::from_value(item.clone()).with_context(|| item.to_string())?);
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) => path = format!("/v1/endpoints?limit=500&continue={token}"),
            None => return Ok(all),
        }
    }
}

/// Who asks where, at which node the rules decide when only its own endpoints count, and the policy that says so.
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
        // Nobody announces addresses of a pool that a writer made.
        let from = match ip {
            IpAddr::V4(v4) if v4.octets()[0] == 172 => "client",
            IpAddr::V4(v4) if v4.octets()[..2] == [10, 200] => "outside",
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        // It comes in at a node that has endpoints, or else at none.
        Some((from.to_owned(), at(*ip, own), 0, TrafficPolicy::Cluster))
    });
    let external = service.external_ips.iter().map(|ip| ("client".to_owned(), at(*ip, own), 1, outside));
    let node_port = port.node_port.map(|node_port| {
        ("client".to_owned(), at(node_addresses(number)[0], node_port.get()), number, outside)
    });
    cluster_ips.chain(balanced).chain(external).chain(node_port).collect()
}

/// The backends that may answer.
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
    // Without any other, endpoints that terminate and still serve are used.
    let serving = near.iter().filter(is_in).filter(|endpoint| endpoint.serving && endpoint.terminating);
    let chosen: Vec<_> = if usable.is_empty() { serving.collect() } else { usable };
    let name = |endpoint: &&&CompiledEndpoint| {
        backends.get(&endpoint.address).cloned().with_context(|| format!("{} is nobody's", endpoint.address))
    };
    chosen.iter().map(name).collect()
}
