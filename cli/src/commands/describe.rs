//! `describe`: shows one object in detail, with its computed endpoints, traffic, health and addresses.

use std::collections::BTreeSet;

use model::{
    kinds::{
        http_route::HttpRouteSpec,
        resource::Kind,
        service::{ServiceSpec, ServiceType},
    },
    primitives::name::Namespace,
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

/// Maximum number of Services whose endpoints a description of an HttpRoute contains.
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
        Resource::Object(Kind::HttpRoute) => Some(of_gateways(client, &object, &namespace).await?),
        Resource::Object(_) | Resource::Endpoints => None,
    };
    let sessions = match resource {
        Resource::Object(Kind::Node) => sessions(client, name.as_str()).await?,
        Resource::Object(_) | Resource::Endpoints => None,
    };
    let backends = match resource {
        Resource::Object(Kind::HttpRoute) => backends(client, &object, &namespace).await?,
        Resource::Object(_) | Resource::Endpoints => Vec::new(),
    };
    let subject = DescribeSubject {
        resource,
        object: &object,
        endpoints: endpoints.as_ref(),
        traffic: traffic.as_ref(),
        health: health.as_ref(),
        addresses: addresses.as_deref(),
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

/// Lists the Address objects of the Services with the namespaces and names of the Gateways of a route.
async fn of_gateways(client: &Client, route: &Value, namespace: &Namespace) -> Result<Vec<Value>, Failure> {
    let spec: Option<HttpRouteSpec> = route.get("spec").and_then(decode);
    let parents = spec.iter().flat_map(|spec| &spec.parent_refs);
    let keys: BTreeSet<_> = parents
        .map(|parent| format!("{}/{}", parent.namespace.as_ref().unwrap_or(namespace), parent.name))
        .collect();
    let mut found = Vec::new();
    for key in keys {
        found.extend(addresses(client, "service", &key).await?);
    }
    Ok(found)
}

/// Reads the computed endpoints of the backends of a route, of at most [`BACKENDS_MAX`] Services.
async fn backends(client: &Client, route: &Value, namespace: &Namespace) -> Result<Vec<Value>, Failure> {
    let spec: Option<HttpRouteSpec> = route.get("spec").and_then(decode);
    let backends = spec.iter().flat_map(|spec| &spec.rules).flat_map(|rule| &rule.backend_refs);
    let names: BTreeSet<_> = backends.map(|backend| &backend.name).collect();
    let mut found = Vec::new();
    for name in names.into_iter().take(BACKENDS_MAX) {
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
