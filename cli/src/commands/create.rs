//! `create`: creates a Service with the EndpointSet of its endpoints, or a Certificate, from options.

use std::path::Path;

use base::clock::wall_clock;
use model::{
    http::{CertificateFacts, certificate_refs},
    kinds::{gateway::GatewayListener, resource::API_VERSION},
    primitives::name::{Name, Namespace},
};
use serde::Deserialize;
use serde_json::{Value, json};
use translate::parse::Language;

use super::{apply::print_outcomes, document};
use crate::{
    args::{
        Document,
        create::{AddressChoice, Create, CreateCertificate, CreateOutput, CreateService, PortMapping},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::{
        render::object_name,
        typed::{decode_items, documents::ApplyResult, word},
    },
};

pub(crate) async fn run(
    client: &Client,
    command: Create,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let arguments = match command {
        Create::Service(arguments) => arguments,
        Create::Certificate(arguments) => return certificate(client, &arguments, terminal).await,
    };
    let objects = objects(&arguments);
    match (arguments.dry_run, arguments.output) {
        (true, Some(CreateOutput::Yaml)) => {
            let documents: Vec<String> =
                objects.iter().map(|object| document(object, Document::Yaml)).collect();
            terminal.print(&documents.join("---\n"))?;
            return Ok(ExitCode::Success);
        }
        (true, Some(CreateOutput::Json)) => {
            terminal.print(&document(&list(&objects), Document::Json))?;
            return Ok(ExitCode::Success);
        }
        (true, None) | (false, _) => {}
    }
    let names: Vec<String> = objects.iter().map(object_name).collect();
    let request = |dry_run: bool| {
        Request::post("/v1/apply")
            .body(Language::Json.media_type(), list(&objects).to_string())
            .query("dryRun", dry_run.then_some("true"))
            .query("confirm", arguments.because.confirm.then_some("true"))
            .message(arguments.because.message.clone())
    };
    let send = async |dry_run| {
        client.send(request(dry_run)).await.map_err(|failure| failure.with_items(names.clone()))
    };
    let preview = send(true).await?;
    let results: Vec<ApplyResult> = decode_items(&preview, "/results");
    if let Some(existing) = results.iter().find(|result| word(&result.action) != "created") {
        let name = object_name(&existing.object);
        if name.starts_with("endpointset/") && results.iter().any(|one| word(&one.action) == "created") {
            return Err(Failure::usage(
                format!("{name} exists, although the Service does not"),
                format!("delete it first: `tidegate delete {name}`, or use another name"),
            ));
        }
        return Err(Failure::usage(
            format!("{name} exists"),
            format!("use another name, or change the object: `tidegate edit {name}`"),
        ));
    }
    let answer = if arguments.dry_run { preview } else { send(false).await? };
    print_outcomes(&answer, arguments.dry_run, terminal)?;
    Ok(ExitCode::Success)
}

/// Creates or renews a Certificate from files.
async fn certificate(
    client: &Client,
    arguments: &CreateCertificate,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let CreateCertificate { name, cert, key, renew, namespace, dry_run, because } = arguments;
    let spec = json!({ "certificate": read(cert)?, "privateKey": read(key)? });
    let object = object("Certificate", namespace, name, spec);
    let request = |dry_run: bool| {
        Request::post("/v1/apply")
            .body(Language::Json.media_type(), list(std::slice::from_ref(&object)).to_string())
            .query("dryRun", dry_run.then_some("true"))
            .query("confirm", because.confirm.then_some("true"))
            .message(because.message.clone())
    };
    let title = object_name(&object);
    let send = async |dry_run| {
        client.send(request(dry_run)).await.map_err(|failure| failure.with_items(vec![title.clone()]))
    };
    let preview = send(true).await?;
    let results: Vec<ApplyResult> = decode_items(&preview, "/results");
    let is_new = results.iter().all(|result| word(&result.action) == "created");
    if !is_new && !renew {
        return Err(Failure::usage(
            format!("{title} exists"),
            "use another name, or replace its certificate and key with --renew".to_owned(),
        ));
    }
    let answer = if *dry_run { preview } else { send(false).await? };
    print_outcomes(&answer, *dry_run, terminal)?;
    // The server has accepted the certificate, so that it can be read.
    if let Ok(facts) =
        object["spec"]["certificate"].as_str().map_or(Err(String::new()), CertificateFacts::read)
    {
        if let Some(problem) = facts.validity_problem(wall_clock()) {
            terminal.note(&format!("warning: the certificate {problem}; clients reject it"));
        }
        // A new Certificate is rarely named before it exists. Without permission for Gateways, there is no warning.
        let path = format!("/v1/namespaces/{namespace}/gateways");
        let gateways = if is_new { None } else { client.send(Request::get(&path)).await.ok() };
        let gateways: Vec<GatewayNames> =
            gateways.map(|all| decode_items(&all, "/items")).unwrap_or_default();
        for (listener, host) in uncovered(&gateways, name, &facts) {
            terminal.note(&format!(
                "warning: listener {listener} has the host name {host}, for which the certificate is not valid"
            ));
        }
    }
    Ok(ExitCode::Success)
}

/// Gateway, of which an unreadable part is left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GatewayNames {
    metadata: GatewayMetadata,
    spec: GatewayListeners,
}

/// Metadata of a Gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GatewayMetadata {
    name: String,
}

/// Spec of a Gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GatewayListeners {
    listeners: Vec<GatewayListener>,
}

/// Returns the listeners that name a Certificate and have a host name for which it is not valid, with the host names.
fn uncovered(
    gateways: &[GatewayNames],
    certificate: &Name,
    facts: &CertificateFacts,
) -> Vec<(String, String)> {
    let of_gateway = |gateway: &GatewayNames| {
        let name = gateway.metadata.name.clone();
        let naming = gateway
            .spec
            .listeners
            .iter()
            .filter(|listener| certificate_refs(listener).any(|one| one.name == *certificate));
        let with_host = naming.filter_map(|listener| {
            let host = listener.hostname.as_ref()?.to_string();
            Some((format!("{name}/{}", listener.name), host))
        });
        // A wildcard name is compared as it is, so that it needs the same one in the certificate.
        with_host
            .filter(|(_, host)| !facts.dns_names.contains(host) && !facts.covers(host))
            .collect::<Vec<_>>()
    };
    gateways.iter().flat_map(of_gateway).collect()
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("cannot read {}: {error}", path.display()),
            "name a readable PEM file".to_owned(),
        )
    })
}

fn list(objects: &[Value]) -> Value {
    json!({ "apiVersion": API_VERSION, "kind": "List", "items": objects })
}

/// Returns the Service of the arguments, and an EndpointSet of the same name if there are endpoints.
fn objects(arguments: &CreateService) -> Vec<Value> {
    let CreateService { service, ports, endpoints, selector, addresses, pool, namespace, .. } = arguments;
    let (namespace, name) = service.clone().or_in(namespace.clone());
    let mut spec = json!({ "ports": ports_of(ports) });
    if !selector.is_empty() {
        let labels = selector.iter().map(|(key, value)| (key.clone(), json!(value)));
        spec["selector"] = Value::Object(labels.collect());
    }
    if !addresses.is_empty() {
        spec["type"] = json!("LoadBalancer");
        let exact: Vec<String> = addresses
            .iter()
            .filter_map(|choice| match choice {
                AddressChoice::Auto => None,
                AddressChoice::Exact(address) => Some(address.to_string()),
            })
            .collect();
        let mut balancer = serde_json::Map::new();
        balancer.extend((!exact.is_empty()).then(|| ("addresses".to_owned(), json!(exact))));
        balancer.extend(pool.as_ref().map(|pool| ("pool".to_owned(), json!(pool.as_str()))));
        if !balancer.is_empty() {
            spec["loadBalancer"] = Value::Object(balancer);
        }
    }
    let mut objects = vec![object("Service", &namespace, &name, spec)];
    if !endpoints.is_empty() {
        let endpoints: Vec<Value> =
            endpoints.iter().map(|address| json!({ "address": address.to_string() })).collect();
        let spec = json!({ "service": name.as_str(), "endpoints": endpoints });
        objects.push(object("EndpointSet", &namespace, &name, spec));
    }
    objects
}

fn object(kind: &str, namespace: &Namespace, name: &Name, spec: Value) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind,
        "metadata": { "name": name.as_str(), "namespace": namespace.as_str() }, "spec": spec,
    })
}

/// Returns the ports of the Service. Several ports are named by protocol and number.
fn ports_of(ports: &[PortMapping]) -> Vec<Value> {
    let entry = |mapping: &PortMapping| {
        let PortMapping { port, target, protocol } = mapping;
        let mut entry = json!({ "port": port, "protocol": protocol });
        if ports.len() > 1 {
            entry["name"] = json!(format!("{}-{port}", protocol.to_ascii_lowercase()));
        }
        if let Some(target) = target {
            entry["targetPort"] = json!(target);
        }
        entry
    };
    ports.iter().map(entry).collect()
}
