//! Certificates of TLS listeners: the choice for the server name of a connection.

use std::collections::BTreeMap;

use super::{
    certificate::CertificateFacts,
    hosts::HostMap,
    objects::{HttpObjectKey, HttpObjects},
};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        gateway::{CertificateRef, GatewayListener, ListenerProtocol},
        resource::{Kind, ObjectKey},
    },
    primitives::{name::Namespace, quantity::Port},
};

/// Certificates of the listeners with TLS by port and host name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTable {
    ports: BTreeMap<Port, HostMap<Vec<TlsChoice>>>,
}

/// Certificate that a listener can present.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TlsChoice {
    key: HttpObjectKey,
    facts: CertificateFacts,
}

/// Reason for which a connection has no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsProblem {
    /// No listener of the port has the server name.
    NoListener,
    /// The listener with the server name has no usable certificate.
    NoCertificate,
}

impl TlsTable {
    /// Collects the usable certificates of the listeners. References without a usable certificate are left out.
    #[must_use]
    pub fn compile(objects: &HttpObjects<'_>, snapshot: &Snapshot) -> Self {
        let mut table = Self::default();
        let protocols = objects.protocols();
        for (gateway, spec) in &objects.gateways {
            for listener in &spec.listeners {
                let is_served = protocols.get(&listener.port) == Some(&listener.protocol);
                if listener.protocol != ListenerProtocol::Https || !is_served {
                    continue;
                }
                let hosts = table.ports.entry(listener.port).or_default();
                let choices = hosts.entry(listener.hostname.as_ref());
                for one in certificate_refs(listener) {
                    let key = HttpObjectKey { namespace: gateway.namespace.clone(), name: one.name.clone() };
                    if let Ok(facts) = resolve_certificate(snapshot, &gateway.namespace, one) {
                        choices.push(TlsChoice { key, facts });
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

    /// Returns the certificate for a connection to a port with a server name in lower case, which is empty if the client
    /// sent none. Of the listener with the most specific host name, the first certificate that is valid for the name
    /// applies, or else the first one.
    ///
    /// # Errors
    /// Returns the reason if there is no certificate.
    pub fn choose<'a>(&'a self, port: Port, server_name: &'a str) -> Result<&'a HttpObjectKey, TlsProblem> {
        let hosts = self.ports.get(&port).ok_or(TlsProblem::NoListener)?;
        let choices = hosts.candidates(server_name).next().ok_or(TlsProblem::NoListener)?;
        let best = choices.iter().find(|choice| choice.facts.covers(server_name));
        let best = best.or_else(|| choices.first()).ok_or(TlsProblem::NoCertificate)?;
        Ok(&best.key)
    }

    /// Returns the certificates of all listeners, with the ends of their validity.
    pub fn certificates(&self) -> BTreeMap<&HttpObjectKey, &CertificateFacts> {
        let choices = self.ports.values().flat_map(HostMap::values).flatten();
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
    CertificateFacts::read(&spec.certificate).map_err(|problem| format!("{key} {problem}"))
}
