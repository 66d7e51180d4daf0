//! Certificates of TLS listeners: the choice for the server name of a connection.

use std::collections::BTreeMap;

use super::{
    certificate::CertificateFacts,
    hosts::HostMap,
    objects::{ConnectionUse, HttpObjectKey, HttpObjects},
};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        gateway::{CertificateRef, GatewayListener},
        resource::{Kind, ObjectKey},
    },
    primitives::{name::Namespace, quantity::Port},
};

/// Certificates of the listeners with TLS by port and host name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTable {
    ports: BTreeMap<Port, HostMap<TlsListener>>,
}

/// Listeners of one host name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TlsListener {
    connection_use: ConnectionUse,
    choices: Vec<TlsChoice>,
}

/// Certificate that a listener can present.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TlsChoice {
    key: HttpObjectKey,
    facts: CertificateFacts,
}

/// Reason for which a gateway closes a connection with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsProblem {
    /// No listener of the port has the server name.
    NoListener,
    /// The listener with the server name has no usable certificate.
    NoCertificate,
    /// The listener forwards connections, and no TlsRoute of it has the server name, or the client sent none.
    NoRoute,
    /// All backends of the TlsRoute have the weight 0.
    NoBackend,
    /// The Service or its port does not exist, or the gateway cannot use it.
    InvalidBackend,
    /// The Service has no usable endpoint.
    NoEndpoints,
}

impl TlsProblem {
    /// Returns the reason in words, for a server name at a port.
    pub(super) fn describe(self, port: Port, server_name: &str) -> String {
        match self {
            Self::NoListener => format!("no listener of port {port} has the server name {server_name}"),
            Self::NoCertificate => {
                format!("the listener for the server name {server_name} has no usable Certificate")
            }
            Self::NoRoute => format!("no TlsRoute of the listener has the server name {server_name}"),
            Self::NoBackend => {
                format!("all backends of the TlsRoute for the server name {server_name} have the weight 0")
            }
            Self::InvalidBackend => {
                format!("the backend of the TlsRoute for the server name {server_name} is invalid")
            }
            Self::NoEndpoints => {
                format!(
                    "the backend of the TlsRoute for the server name {server_name} has no endpoint in service"
                )
            }
        }
    }
}

impl TlsTable {
    /// Collects the usable certificates of the listeners. References without a usable certificate are left out.
    #[must_use]
    pub fn compile(objects: &HttpObjects<'_>, snapshot: &Snapshot) -> Self {
        let mut table = Self::default();
        let uses = objects.uses();
        for (gateway, spec) in &objects.gateways {
            for listener in spec.listeners.iter().filter(|listener| uses.serve(listener)) {
                let Some(connection_use) = ConnectionUse::of(listener) else { continue };
                let hosts = table.ports.entry(listener.port).or_default();
                let entry = hosts.entry(listener.hostname.as_ref());
                entry.connection_use = connection_use;
                for one in certificate_refs(listener) {
                    let key = HttpObjectKey { namespace: gateway.namespace.clone(), name: one.name.clone() };
                    if let Ok(facts) = resolve_certificate(snapshot, &gateway.namespace, one) {
                        entry.choices.push(TlsChoice { key, facts });
                    }
                }
            }
        }
        table
    }

    /// Returns true if connections to a port begin with TLS.
    #[must_use]
    pub fn is_tls(&self, port: Port) -> bool {
        self.ports.contains_key(&port)
    }

    /// Returns true if a listener of a port forwards connections by TlsRoutes.
    #[must_use]
    pub fn forwards(&self, port: Port) -> bool {
        let listeners = self.ports.get(&port).into_iter().flat_map(HostMap::values);
        listeners.into_iter().any(|listener| listener.connection_use != ConnectionUse::Requests)
    }

    /// Returns the listener of a port for a server name in lower case: the rank of its host name, and the treatment of its
    /// connections.
    pub(super) fn listener(
        &self,
        port: Port,
        server_name: &str,
    ) -> Result<(usize, ConnectionUse), TlsProblem> {
        let hosts = self.ports.get(&port).ok_or(TlsProblem::NoListener)?;
        let (rank, listener) = hosts.ranked(server_name).next().ok_or(TlsProblem::NoListener)?;
        Ok((rank, listener.connection_use))
    }

    /// Returns the certificate for a connection to a port with a server name in lower case, which is empty if the client
    /// sent none. Of the listener with the most specific host name, the first certificate that is valid for the name
    /// applies, or else the first one.
    ///
    /// # Errors
    /// Returns the reason if there is no certificate.
    pub fn choose<'a>(&'a self, port: Port, server_name: &'a str) -> Result<&'a HttpObjectKey, TlsProblem> {
        let hosts = self.ports.get(&port).ok_or(TlsProblem::NoListener)?;
        let TlsListener { choices, .. } =
            hosts.candidates(server_name).next().ok_or(TlsProblem::NoListener)?;
        let best = choices.iter().find(|choice| choice.facts.covers(server_name));
        let best = best.or_else(|| choices.first()).ok_or(TlsProblem::NoCertificate)?;
        Ok(&best.key)
    }

    /// Returns the certificates of all listeners, with the ends of their validity.
    pub fn certificates(&self) -> BTreeMap<&HttpObjectKey, &CertificateFacts> {
        let choices = self.ports.values().flat_map(HostMap::values).flat_map(|listener| &listener.choices);
        choices.map(|choice| (&choice.key, &choice.facts)).collect()
    }
}

/// Returns the references of a listener to its certificates.
pub fn certificate_refs(listener: &GatewayListener) -> impl Iterator<Item = &CertificateRef> {
    listener.tls.iter().flat_map(|tls| &tls.certificate_refs)
}

/// Returns the facts of the Certificate that a listener of a Gateway in `namespace` names.
///
/// # Errors
/// Returns the reason if it does not exist or is malformed.
pub fn resolve_certificate(
    snapshot: &Snapshot,
    namespace: &Namespace,
    reference: &CertificateRef,
) -> Result<CertificateFacts, String> {
    let name = reference.name.clone();
    let key = ObjectKey { kind: Kind::Certificate, namespace: Some(namespace.clone()), name };
    let object = snapshot.get(&key).ok_or_else(|| format!("{key} does not exist"))?;
    let spec = object.as_certificate().ok_or_else(|| format!("{key} does not exist"))?;
    if spec.certificate.is_empty() && spec.acme.is_some() {
        return Err(format!("{key} has not been issued yet"));
    }
    CertificateFacts::read(&spec.certificate).map_err(|problem| format!("{key} {problem}"))
}
