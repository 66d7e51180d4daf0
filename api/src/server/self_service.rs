//! Registration of the control servers as endpoints of a Service (`--publish-as`), so that clients can use one
//! virtual address for all of them. Each server writes an EndpointSet with its own address; the nodes' health
//! checks select the live servers.
//!
//! The EndpointSet of a server remains when the server stops. A server that returns is used again without a write;
//! the EndpointSet of a decommissioned server must be deleted by the operator.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use model::{
    admission::{
        admit::{Operation, Request},
        decode::{Expect, decode},
    },
    kinds::resource::{Object, ServiceKey},
    primitives::name::Name,
};
use serde_json::{Value, json};

use crate::{context::server_state::ServerState, security::Caller};

/// Port of the Service, the same as that of the `kubernetes` Service.
const PORT: u16 = 443;
/// Name of the port in the registered Service.
const PORT_NAME: &str = "https";
/// Interval of the health checks in milliseconds. A server that fails three of them gets no new connections.
const CHECK_INTERVAL_MS: u32 = 1000;
/// Timeout of a health check in milliseconds.
const CHECK_TIMEOUT_MS: u32 = 500;
/// Pause after a failed attempt to register this server, before the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// Service and EndpointSet by which this server registers itself as an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    key: ServiceKey,
    address: SocketAddr,
    service: Object,
    endpoints: Object,
}

/// Reason why this server cannot register itself as an endpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CannotPublish {
    /// Listen address that other machines cannot reach.
    #[error("--publish-as needs a --listen address that the nodes can reach, not {0}")]
    Address(SocketAddr),
    /// Service name and server name that together do not form a valid object name.
    #[error(
        "--publish-as: {0} is not a valid object name: set --replica-name to a name of lower-case \
         letters, digits, - and ."
    )]
    Name(String),
    /// Listen address that is not valid as the address of an endpoint.
    #[error("--publish-as: --listen is not a valid endpoint address: {0}")]
    Endpoint(String),
}

impl Publication {
    /// Creates the objects that register this server, which listens on `address`, as an endpoint of the Service.
    ///
    /// # Errors
    /// Returns an error if other machines cannot reach `address`, or if an object would be invalid.
    pub fn of(service: ServiceKey, replica: &str, address: SocketAddr) -> Result<Self, CannotPublish> {
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            return Err(CannotPublish::Address(address));
        }
        let name = format!("{}-{replica}", service.name);
        let set = Name::parse(&name).map_err(|_| CannotPublish::Name(name))?;
        let object = |value: &Value| {
            decode(value, &Expect::default()).map_err(|violations| {
                let words = violations.iter().map(|one| format!("{} {}", one.pointer, one.message));
                CannotPublish::Endpoint(words.collect::<Vec<_>>().join("; "))
            })
        };
        let endpoints = object(&endpoints(&service, &set, address))?;
        Ok(Self { service: object(&service_of(&service, address))?, endpoints, key: service, address })
    }
}

/// Returns the Service to create if it does not exist. An existing Service is not changed.
fn service_of(key: &ServiceKey, address: SocketAddr) -> Value {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    json!({
        "kind": "Service",
        "metadata": { "namespace": key.namespace, "name": key.name },
        "spec": {
            "type": "ClusterIP",
            "ipFamilies": [family],
            "ports": [{ "name": PORT_NAME, "port": PORT, "targetPort": address.port(), "protocol": "TCP" }],
            "healthCheck": { "type": "Tcp", "intervalMs": CHECK_INTERVAL_MS, "timeoutMs": CHECK_TIMEOUT_MS },
        },
    })
}

fn endpoints(key: &ServiceKey, set: &Name, address: SocketAddr) -> Value {
    json!({
        "kind": "EndpointSet",
        "metadata": { "namespace": key.namespace, "name": set },
        "spec": {
            "service": key.name,
            "ports": [{ "name": PORT_NAME, "protocol": "TCP", "port": address.port() }],
            "endpoints": [{ "address": address.ip() }],
        },
    })
}

/// Registers this server as an endpoint, and retries until it succeeds.
pub async fn run(app: Arc<ServerState>, publication: Publication) {
    let Publication { key, address, service, endpoints } = publication;
    loop {
        let is_there = app.hub.load().snapshot.get(&key.object_key()).is_some();
        let mut operations = vec![Operation::Apply(endpoints.clone())];
        if !is_there {
            operations.push(Operation::Create(service.clone()));
        }
        let request = Request { operations, ..Request::default() };
        match app.writer.write(&Caller::server(), request, app.source.draw(), 0).await {
            Ok(_) => return tracing::info!(service = %key, %address, "registered as an endpoint"),
            // Another server may have created the Service in between; the next attempt finds it.
            Err(error) => tracing::warn!(service = %key, %address, ?error, "cannot register as an \
                                                                            endpoint yet"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key() -> ServiceKey {
        ServiceKey::try_from("tidegate/control".to_owned()).unwrap()
    }

    #[test]
    fn what_is_published_is_valid_and_named_by_service_and_replica() {
        let made = Publication::of(key(), "control-1.example", "192.0.2.1:7440".parse().unwrap()).unwrap();
        assert_eq!(made.service.key().name.as_str(), "control");
        assert_eq!(made.endpoints.key().name.as_str(), "control-control-1.example");
    }

    #[test]
    fn an_address_that_nobody_else_reaches_and_a_name_that_is_none_are_refused_in_words() {
        let refused = |replica: &str, address: &str| {
            Publication::of(key(), replica, address.parse().unwrap()).unwrap_err().to_string()
        };
        assert!(refused("a", "0.0.0.0:7440").contains("--listen"));
        assert!(refused("a", "[::1]:7440").contains("--listen"));
        assert!(refused("a", "[fe80::1]:7440").contains("/spec/endpoints/0/address"));
        assert!(refused("My_Machine", "192.0.2.1:7440").contains("--replica-name"));
    }
}
