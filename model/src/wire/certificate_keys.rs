//! Certificates with their private keys, which gateways receive.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::resource::{Kind, ObjectKey},
    primitives::{
        name::{Name, Namespace},
        quantity::Revision,
        secret::Secret,
    },
};

/// Certificates of the listeners of Gateways at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateKeyList {
    /// Revision of the state that has these certificates.
    pub revision: Revision,
    /// Certificates, ordered by namespace and name.
    pub keys: Vec<CertificateKey>,
}

/// Certificate with its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateKey {
    /// Namespace of the Certificate.
    pub namespace: Namespace,
    /// Name of the Certificate.
    pub name: Name,
    /// Certificate chain in PEM.
    pub certificate: String,
    /// Private key of the first certificate in PEM.
    #[schema(value_type = String)]
    pub private_key: Secret,
}

impl CertificateKeyList {
    /// Returns the certificates that listeners of Gateways name, of the Gateways for which `is_served` returns true.
    #[must_use]
    pub fn of(snapshot: &Snapshot, is_served: impl Fn(&Namespace, &Name) -> bool) -> Self {
        let mut keys = BTreeMap::new();
        for object in snapshot.list(Kind::Gateway, None, None) {
            let name = &object.metadata.name;
            let (Some(spec), Some(namespace)) = (object.as_gateway(), &object.metadata.namespace) else {
                continue;
            };
            if !is_served(namespace, name) {
                continue;
            }
            let refs = spec.listeners.iter().flat_map(|listener| &listener.tls);
            for reference in refs.flat_map(|tls| &tls.certificate_refs) {
                let key = (namespace.clone(), reference.name.clone());
                let found = read(snapshot, &key.0, &key.1);
                keys.extend(found.map(|found| (key, found)));
            }
        }
        Self { revision: snapshot.revision(), keys: keys.into_values().collect() }
    }
}

fn read(snapshot: &Snapshot, namespace: &Namespace, name: &Name) -> Option<CertificateKey> {
    let (namespace, name) = (namespace.clone(), name.clone());
    let key = ObjectKey { kind: Kind::Certificate, namespace: Some(namespace.clone()), name: name.clone() };
    let spec = snapshot.get(&key)?.as_certificate()?;
    let private_key = spec.private_key.clone()?;
    Some(CertificateKey { namespace, name, certificate: spec.certificate.clone(), private_key })
}
