//! `describe`: shows one object in detail, with its computed endpoints, traffic, health and addresses.

use std::collections::BTreeSet;

use model::{
    kinds::{
        http_route::{HttpRouteSpec, ParentRef},
        resource::Kind,
        service::{ServiceSpec, ServiceType},
        tls_route::TlsRouteSpec,
    },
    primitives::name::{Name, Namespace},
};
use serde_json::Value;

use super::{
    get::{object_path, parse_located},
    now,
};
use crate::{
    args::Describe,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{
        describe::{DescribeSubject, describe},
        typed::{decode, items},
    },
};

/// Maximum number of Services whose endpoints a description of a route contains.
const BACKENDS_MAX: usize = 32;

pub(crate) async fn run(
    client: &Client,
    arguments: Describe,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let [resource] = arguments.target.resources[..] else {
        return Err(Failure::usage(
            "only one object can be described at a time",
            "write `describe KIND NAME`",
        ));
    };
    let given: Vec<&String> = arguments.target.name.iter().chain(&arguments.name).collect();
    let [name] = given[..] else {
        let word = resource.singular();
        return Err(Failure::usage(format!("which {word}?"), format!("the name of the {word} is missing")));
    };
    let (namespace, name) = parse_located(resource, name, &arguments.namespace)?;
    let path = |resource| object_path(resource, &namespace, &name);
    let object = client.send(Request::get(path(resource))).await?;
    // A Service that is not compiled, such as an ExternalName, has no endpoints; its description omits them.
    let (endpoints, traffic, health) = match resource {
        Resource::Object(Kind::Service) => (
            unless_missing(client, path(Resource::Endpoints)).await?,
            unless_missing(client, format!("{}/traffic", path(resource))).await?,
            unless_missing(client, format!("{}/health", path(resource))).await?,
        ),
        Resource::Object(_) | Resource::Endpoints => (None, None, None),
    };
    let addresses = match resource {
        Resource::Object(Kind::Service) if is_load_balancer(&object) => {
            let key = format!("{namespace}/{name}");
            Some(addresses(client, "service", &key).await?)
        }
        Resource::Object(Kind::AddressPool) => Some(addresses(client, "pool", name.as_str()).await?),
        Resource::Object(Kind::Gateway) => {
            Some(addresses(client, "service", &format!("{namespace}/{name}")).await?)
        }
        Resource::Object(Kind::HttpRoute | Kind::TlsRoute) => {
            Some(of_gateways(client, &references(&object), &namespace).await?)
        }
        Resource::Object(_) | Resource::Endpoints => None,
    };
    let blocks = blocks(client, resource, name.as_str()).await?;
    let sessions = match resource {
        Resource::Object(Kind::Node) => sessions(client, name.as_str()).await?,
        Resource::Object(_) | Resource::Endpoints => None,
    };
    let backends = match resource {
        Resource::Object(Kind::HttpRoute | Kind::TlsRoute) => {
            backends(client, &references(&object), &namespace).await?
        }
        Resource::Object(_) | Resource::Endpoints => Vec::new(),
    };
    let subject = DescribeSubject {
        resource,
        object: &object,
        endpoints: endpoints.as_ref(),
        traffic: traffic.as_ref(),
        health: health.as_ref(),
        addresses: addresses.as_deref(),
        blocks: blocks.as_deref(),
        sessions: sessions.as_ref(),
        backends: &backends,
    };
    terminal.print(&describe(&subject, now(), terminal.style))?;
    Ok(ExitCode::Success)
}

fn is_load_balancer(service: &Value) -> bool {
    let spec: Option<ServiceSpec> = service.get("spec").and_then(decode);
    spec.is_some_and(|spec| spec.service_type == ServiceType::LoadBalancer)
}

/// Lists the Address objects that belong to the object named `whose`: to a pool if `of` is `pool`, or to a
/// Service if `of` is `service`.
async fn addresses(client: &Client, of: &'static str, whose: &str) -> Result<Vec<Value>, Failure> {
    let listing =
        client.list(|| Request::get(format!("/v1/{}", Kind::Address.plural())).query(of, Some(whose)));
    Ok(items(&listing.await?.envelope, "/items").to_vec())
}

/// Lists the blocks of a WorkloadNetwork or Node. `None` for other objects, if a Node has none, or if the server does not
/// support blocks.
async fn blocks(client: &Client, resource: Resource, name: &str) -> Result<Option<Vec<Value>>, Failure> {
    let field = match resource {
        Resource::Object(Kind::WorkloadNetwork) => "/spec/network",
        Resource::Object(Kind::Node) => "/spec/node",
        Resource::Object(_) | Resource::Endpoints => return Ok(None),
    };
    let listing = match client.list(|| Request::get(format!("/v1/{}", Kind::Block.plural()))).await {
        Ok(listing) => listing,
        Err(failure) if failure.problem_code() == Some("NotFound") => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let is_of = |block: &&Value| block.pointer(field).and_then(Value::as_str) == Some(name);
    let found: Vec<_> = items(&listing.envelope, "/items").iter().filter(is_of).cloned().collect();
    let is_shown = field == "/spec/network" || !found.is_empty();
    Ok(is_shown.then_some(found))
}

/// Objects that a route names.
#[derive(Default)]
struct RouteReferences {
    parents: Vec<ParentRef>,
    services: BTreeSet<Name>,
}

/// Returns the objects that an HttpRoute or TlsRoute names; none if this version cannot decode it.
fn references(route: &Value) -> RouteReferences {
    let spec = || route.get("spec");
    if let Some(HttpRouteSpec { parent_refs, rules, .. }) = spec().and_then(decode) {
        let backends = rules.into_iter().flat_map(|rule| rule.backend_refs);
        return RouteReferences { parents: parent_refs, services: backends.map(|one| one.name).collect() };
    }
    let Some(TlsRouteSpec { parent_refs, rules, .. }) = spec().and_then(decode) else {
        return RouteReferences::default();
    };
    let backends = rules.into_iter().flat_map(|rule| rule.backend_refs);
    RouteReferences { parents: parent_refs, services: backends.map(|one| one.name).collect() }
}

/// Lists the Address objects of the Services with the namespaces and names of the Gateways of a route.
async fn of_gateways(
    client: &Client,
    route: &RouteReferences,
    namespace: &Namespace,
) -> Result<Vec<Value>, Failure> {
    let keys: BTreeSet<_> = route
        .parents
        .iter()
        .map(|parent| format!("{}/{}", parent.namespace.as_ref().unwrap_or(namespace), parent.name))
        .collect();
    let mut found = Vec::new();
    for key in keys {
        found.extend(addresses(client, "service", &key).await?);
    }
    Ok(found)
}

/// Reads the computed endpoints of the backends of a route, of at most [`BACKENDS_MAX`] Services.
async fn backends(
    client: &Client,
    route: &RouteReferences,
    namespace: &Namespace,
) -> Result<Vec<Value>, Failure> {
    let mut found = Vec::new();
    for name in route.services.iter().take(BACKENDS_MAX) {
        found.extend(unless_missing(client, object_path(Resource::Endpoints, namespace, name)).await?);
    }
    Ok(found)
}

/// Lists the BGP sessions of a node. `None` if the server does not support BGP.
async fn sessions(client: &Client, node: &str) -> Result<Option<Value>, Failure> {
    let listing = client.list(|| Request::get("/v1/bgp/sessions").query("node", Some(node)));
    match listing.await {
        Ok(listing) => Ok(Some(listing.envelope)),
        Err(failure) if failure.problem_code() == Some("NotFound") => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Sends a GET request. Returns `None` if the path does not exist.
async fn unless_missing(client: &Client, path: String) -> Result<Option<Value>, Failure> {
    match client.send(Request::get(path)).await {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.problem_code() == Some("NotFound") => Ok(None),
        Err(failure) => Err(failure),
    }
}
