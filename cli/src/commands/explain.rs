//! `explain`: traces a packet through the nodes, or explains why an address or a Service does or does not
//! respond.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::ValueEnum;
use model::{kinds::resource::Kind, views::explain::Explanation, wire::trace::Packet};

use super::{document, get::object_path};
use crate::{
    args::{
        Document,
        explain::{Explain, ExplainOutput, ExplainSubject},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{
        explain,
        typed::{decode_items, decode_or_default},
    },
};

pub(crate) async fn run(
    client: &Client,
    arguments: Explain,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let subject = arguments.subject().map_err(|message| Failure::Usage { message, hint: None })?;
    let Explain { at, namespace, desired_only, graph, output, from, .. } = arguments;
    let subject = match from {
        Some(source) => seen_from(client, subject, source).await?,
        None => subject,
    };
    let request = match &subject {
        ExplainSubject::Packet { source, destination, protocol } => packet(*source, *destination, protocol),
        ExplainSubject::Frontend { destination, protocol } => {
            let source = typical_client(client, *destination, protocol).await?;
            terminal.note(&format!(
                "traced from {source}; `tidegate explain SOURCE {destination}` traces from another client"
            ));
            packet(source, *destination, protocol)
        }
        ExplainSubject::Address(address) => {
            Request::get("/v1/explain").query("destination", Some(address.to_string()))
        }
        ExplainSubject::Service(name) => {
            let (namespace, name) = name.clone().or_in(namespace);
            let object = object_path(Resource::Object(Kind::Service), &namespace, &name);
            let form = graph.and_then(|form| form.to_possible_value());
            let form = form.map(|form| form.get_name().to_owned());
            Request::get(format!("{object}/explain")).query("graph", form)
        }
    };
    if graph.is_some() && !matches!(subject, ExplainSubject::Service(_)) {
        let message = "--graph requires a Service; packets and addresses have no graph".to_owned();
        return Err(Failure::Usage { message, hint: None });
    }
    // The graph needs no data from the nodes.
    let desired_only = desired_only || graph.is_some();
    let request = request.query("node", at.map(|node| node.to_string()));
    let request = request.query("desiredOnly", desired_only.then_some("true"));
    let answer = client.send(request).await?;
    let text = match output {
        ExplainOutput::Text if graph.is_some() => {
            let Explanation { graph, .. } = decode_or_default(Some(&answer));
            let drawing = graph.unwrap_or_default();
            if drawing.is_empty() {
                terminal.note("the graph is empty: the Service is not programmed");
            }
            drawing
        }
        ExplainOutput::Text => explain::explanation(&answer, terminal.style),
        ExplainOutput::Json => document(&answer, Document::Json),
        ExplainOutput::Yaml => document(&answer, Document::Yaml),
    };
    terminal.print(&text)?;
    let is_broken = answer.get("broken").is_some_and(|broken| !broken.is_null());
    Ok(if is_broken { ExitCode::Problems } else { ExitCode::Success })
}

/// Replaces an address, with or without a port, by the packet of the client `source` to it. An address without a port
/// stands for the first port of its Service.
async fn seen_from(
    client: &Client,
    subject: ExplainSubject,
    source: IpAddr,
) -> Result<ExplainSubject, Failure> {
    let (destination, protocol) = match subject {
        ExplainSubject::Frontend { destination, protocol } => (destination, protocol),
        ExplainSubject::Address(address) => {
            let packets = sample_packets(client, address).await?;
            let Some(packet) = packets.first() else {
                // The explanation of the address tells why no packet to it can be traced.
                return Ok(ExplainSubject::Address(address));
            };
            (SocketAddr::new(address, packet.port.get()), packet.protocol.as_str())
        }
        ExplainSubject::Packet { .. } | ExplainSubject::Service(_) => {
            return Err(Failure::usage(
                "--from is the client of an address, `dns` or `http`",
                "`tidegate explain CLIENT '->' ADDRESS:PORT` traces a packet of one client",
            ));
        }
    };
    if source.is_ipv4() != destination.is_ipv4() {
        let message = format!("{source} and {} are of different IP families", destination.ip());
        return Err(Failure::Usage { message, hint: None });
    }
    Ok(ExplainSubject::Packet { source, destination, protocol })
}

/// Path of an explanation, reduced to its packet.
#[derive(serde::Deserialize)]
struct SamplePath {
    packet: Packet,
}

fn packet(source: IpAddr, destination: SocketAddr, protocol: &'static str) -> Request {
    Request::get("/v1/explain")
        .query("source", Some(source.to_string()))
        .query("destination", Some(destination.ip().to_string()))
        .query("protocol", Some(protocol))
        .query("port", Some(destination.port().to_string()))
}

/// Returns the packets by which the server explains an address.
async fn sample_packets(client: &Client, address: IpAddr) -> Result<Vec<Packet>, Failure> {
    let request = Request::get("/v1/explain")
        .query("destination", Some(address.to_string()))
        .query("desiredOnly", Some("true"));
    let paths: Vec<SamplePath> = decode_items(&client.send(request).await?, "/paths");
    Ok(paths.into_iter().map(|path| path.packet).collect())
}

/// Returns the source address of a packet that the Service at `destination` accepts, as proposed by the server. For an
/// address without a Service, returns an address for documentation (RFC 5737, RFC 3849).
async fn typical_client(client: &Client, destination: SocketAddr, protocol: &str) -> Result<IpAddr, Failure> {
    let packets = sample_packets(client, destination.ip()).await?;
    let packets = || packets.iter();
    let is_same =
        |packet: &&Packet| packet.port.get() == destination.port() && packet.protocol.as_str() == protocol;
    let proposed = packets().find(is_same).or_else(|| packets().next()).map(|packet| packet.source);
    let proposed = proposed.filter(|source| source.is_ipv4() == destination.is_ipv4());
    Ok(proposed.unwrap_or(if destination.is_ipv4() {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))
    } else {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))
    }))
}
