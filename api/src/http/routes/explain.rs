//! `GET /v1/explain` and `GET …/services/{name}/explain`: path of a packet through the cluster, and the reasons
//! why an address or Service is unreachable.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use axum::extract::State;
use futures::future::join_all;
use http::HeaderMap;
use model::{
    kinds::{
        resource::{Kind, ObjectKey, ServiceKey, Spec},
        service::Protocol,
    },
    primitives::{name::Name, quantity::Port},
    program::NodeLocation,
    views::explain::{self, Explanation, GraphForm},
    wire::{
        ask::{Question, Reply},
        trace::{Packet, PacketTrace},
    },
};
use serde::Deserialize;
use utoipa::{IntoParams, openapi::HttpMethod};

use super::{Shared, of_service::ServicePath};
use crate::{
    base::{
        error::{Answer, Code, Problem},
        negotiate::{form, render},
    },
    http::{
        openapi::{Doc, OBJECT_TYPES, Route, Routes},
        params::{ApiPath, ApiQuery},
        patch::not_found,
    },
    security::{Verb, on},
};

/// Maximum time for one node to trace one packet through its kernel.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum time for the packet traces of all nodes together. A trace that is missing by then is reported as
/// unknown.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PacketQuery {
    /// Source address of the packet. If absent, the destination address is explained instead of a packet.
    #[param(value_type = Option<String>, example = "198.51.100.7")]
    source: Option<IpAddr>,
    /// Destination address, for example a virtual address of a Service.
    #[param(value_type = String, example = "203.0.113.10")]
    destination: IpAddr,
    /// Transport protocol of the packet. Default: TCP.
    #[param(value_type = Option<Protocol>)]
    protocol: Option<Protocol>,
    /// Destination port of the packet, from 1 to 65535. Required with `source`.
    #[param(minimum = 1, maximum = 65535)]
    port: Option<u16>,
    /// Name of a Node. Only paths on this node are explained. Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// If true, only the desired state is evaluated, and the nodes are not queried for kernel traces. Default:
    /// false.
    #[serde(default)]
    #[param(required = false)]
    desired_only: bool,
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ServiceQuery {
    /// Name of a Node. Only paths on this node are explained. Default: all nodes.
    #[param(value_type = Option<String>, max_length = 253)]
    node: Option<Name>,
    /// Format of a graph of the packet processing on `node`, or, if `node` is absent, on a node that runs no
    /// endpoint. Default: no graph.
    #[param(inline)]
    #[param(inline)]
    graph: Option<GraphForm>,
    /// If true, only the desired state is evaluated, and the nodes are not queried for kernel traces. Default:
    /// false.
    #[serde(default)]
    #[param(required = false)]
    desired_only: bool,
}

/// Registers the routes that explain packet paths and Services.
pub(super) fn add(router: Routes) -> Routes {
    let of_packet = Doc::new("explain", "Cluster", "Explain the path of a packet")
        .describe(
            "Evaluates the desired state step by step up to the first broken step, and compares it with \
             the current kernel state of the nodes up to the first difference. With `source` and `port` \
             the result concerns one packet, else the destination address.",
        )
        .query::<PacketQuery>()
        .answer::<Explanation>(200, "Returned with the explanation.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable]);
    let of_service = Doc::new("explainService", "Service", "Explain connections to a Service")
        .describe("Follows each frontend on each node to its endpoints, up to the first broken step.")
        .in_namespace()
        .named("name", "Name of the Service.")
        .query::<ServiceQuery>()
        .answer::<Explanation>(200, "Returned with the explanation.", &OBJECT_TYPES, &[])
        .problems(&[Code::NotAcceptable, Code::NotFound]);
    let path = "/v1/namespaces/{namespace}/services/{name}/explain";
    router
        .routes(
            Route::at("/v1/explain")
                .on(HttpMethod::Get, on(Verb::Explain, Kind::Service), of_packet, explain)
                .done(),
        )
        .routes(
            Route::at(path)
                .on(HttpMethod::Get, on(Verb::Explain, Kind::Service), of_service, explain_service)
                .done(),
        )
}

async fn explain(
    State(app): State<Shared>,
    ApiQuery(query): ApiQuery<PacketQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let PacketQuery { source, destination, protocol, port, node, desired_only } = query;
    let bad = |what: &str| Err(Problem::bad_request(format!("query parameter: {what}")));
    let packet = match (source, port) {
        (Some(source), Some(port)) => {
            let Some(port) = Port::new(port) else { return bad("`port` must be from 1 to 65535, not 0") };
            if source.is_ipv4() != destination.is_ipv4() {
                return bad("`source` and `destination` must be of one IP family");
            }
            Some(Packet { source, destination, protocol: protocol.unwrap_or(Protocol::Tcp), port })
        }
        (None, None) if protocol.is_none() => None,
        (None, _) => return bad("`source` is missing; without a packet, name the destination only"),
        (Some(_), None) => return bad("`port` is missing; a packet has a source, a destination and a port"),
    };
    let explanation = {
        let view = app.view();
        let renderer = view.renderer();
        renderer.announcing(|of| match &packet {
            Some(packet) => explain::packet(of, packet, node.as_ref()),
            None => explain::address(of, destination, node.as_ref()),
        })
    };
    let explanation = if desired_only { explanation } else { ask(&app, explanation).await };
    Ok(render(form, &explanation))
}

async fn explain_service(
    State(app): State<Shared>,
    ApiPath(ServicePath { namespace, name }): ApiPath<ServicePath>,
    ApiQuery(query): ApiQuery<ServiceQuery>,
    headers: HeaderMap,
) -> Answer {
    let form = form(&headers)?;
    let ServiceQuery { node, graph, desired_only } = query;
    let key = ServiceKey { namespace, name };
    let explanation = {
        let view = app.view();
        let renderer = view.renderer();
        let explained = renderer.announcing(|of| explain::service(of, &key, node.as_ref()));
        let mut explained = explained.ok_or_else(|| not_found(&key.object_key()))?;
        let compiled = view.published().compiled.get(&key).map(|entry| &*entry.form);
        if let (Some(graph), Some(compiled)) = (graph, compiled) {
            let place = place(&view.published().snapshot, node.as_ref());
            explained.graph = explain::graph(compiled, &place, graph).ok();
        }
        explained
    };
    let explanation = if desired_only { explanation } else { ask(&app, explanation).await };
    Ok(render(form, &explanation))
}

/// Returns the location for which a graph of packet processing is drawn: name and zone of `node`, or, if
/// `node` is `None`, a placeholder for a node that runs no endpoint.
fn place(snapshot: &model::cluster::snapshot::Snapshot, node: Option<&Name>) -> NodeLocation {
    let nobody = || Name::parse("any-node").expect("this is a name");
    let Some(node) = node else { return NodeLocation { node: nobody(), zone: None } };
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() };
    let object = snapshot.get(&key);
    let zone =
        object.and_then(|object| if let Spec::Node(spec) = &object.spec { spec.zone.clone() } else { None });
    NodeLocation { node: node.clone(), zone }
}

/// Adds kernel traces to an explanation. All nodes are queried at the same time; each node traces its packets one
/// after the other.
async fn ask(app: &Shared, mut explanation: Explanation) -> Explanation {
    let mut by_node: BTreeMap<Name, Vec<(usize, Packet)>> = BTreeMap::new();
    for (index, path) in explanation.paths.iter().enumerate() {
        by_node.entry(path.node.clone()).or_default().push((index, path.packet));
    }
    let until = tokio::time::Instant::now() + PATIENCE_WITH_ALL;
    let asked = by_node.iter().map(|(node, packets)| ask_node(app, node, packets, until));
    for (index, said) in join_all(asked).await.into_iter().flatten() {
        if let Some(path) = explanation.paths.get_mut(index) {
            path.compare(said);
        }
    }
    explanation.concluded()
}

/// Traces packets on one node, one after the other. Returns the index of each packet with its trace, or with
/// the reason why there is none. After the first query without a reply, the node is not queried again.
async fn ask_node(
    app: &Shared,
    node: &Name,
    packets: &[(usize, Packet)],
    until: tokio::time::Instant,
) -> Vec<(usize, Result<PacketTrace, String>)> {
    let mut said = Vec::new();
    let mut silent: Option<String> = None;
    for (index, packet) in packets {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        if silent.is_none() && left.is_zero() {
            silent = Some("the time limit was reached before the node could be queried".to_owned());
        }
        if let Some(why) = &silent {
            said.push((*index, Err(why.clone())));
            continue;
        }
        let reply = app.queries.ask(node, Question::Trace(*packet), PATIENCE.min(left)).await;
        said.push((
            *index,
            match reply {
                Ok(Reply::Trace(traced)) => Ok(traced),
                Ok(Reply::Failed { message }) => Err(message),
                Ok(Reply::Plan(_) | Reply::Doctor { .. } | Reply::Fix { .. } | Reply::Confirmed(_)) => {
                    Err("the node sent a reply of another type".to_owned())
                }
                Err(error) => {
                    let why = error.to_string();
                    silent = Some(why.clone());
                    Err(why)
                }
            },
        ));
    }
    said
}
