//! Reads the Secrets with certificates that Gateways and Ingresses name, and no others: by name, so that `get` permission is
//! sufficient and Roles can be limited to names.
//!
//! Invariants: no private key appears in a log or in a reported problem; a certificate that is in use does not disappear
//! because the API server is unreachable.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{
    resource::Resource,
    state::{CertificateSecrets, Change, Id},
    words,
};

/// Poll interval of the Secrets, and so the maximum delay until a renewed certificate is used.
const INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of reading one Secret.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent reads; limited because the API server has other clients.
const READS_MAX: usize = 8;

/// Reads the named Secrets, periodically and when the names change. Sends them to `changes` if they differ from those sent
/// before, until its receiver is closed. A Secret without permission is logged, and counts as absent. A Secret that cannot be
/// read for another reason keeps its last contents; nothing is mirrored while it has none.
pub(super) async fn follow(
    client: Client,
    mut names: watch::Receiver<Option<BTreeSet<Id>>>,
    changes: mpsc::Sender<(Resource, Change)>,
) {
    let mut known = BTreeMap::<Id, Option<Value>>::new();
    let mut logged = BTreeMap::<Id, String>::new();
    let mut sent = None;
    loop {
        // The names are known once classes, Gateways and Ingresses have been listed.
        let Some(wanted) = names.borrow_and_update().clone() else {
            if names.changed().await.is_err() {
                return;
            }
            continue;
        };
        known.retain(|id, _| wanted.contains(id));
        logged.retain(|id, _| wanted.contains(id));
        // The futures own their data: with borrowed ids, the compiler cannot prove that they are `Send`.
        let reads = wanted.iter().cloned().map(|id| {
            let client = client.clone();
            async move {
                let read = read(&client, &id).await;
                (id, read)
            }
        });
        let reads: Vec<_> = futures::stream::iter(reads).buffer_unordered(READS_MAX).collect().await;
        for (id, read) in reads {
            match read {
                Ok(secret) => {
                    logged.remove(&id);
                    known.insert(id, secret);
                }
                Err(Unreadable { is_denied, cause }) => {
                    if is_denied {
                        known.entry(id.clone()).or_default();
                    }
                    if logged.get(&id) != Some(&cause) {
                        tracing::warn!(
                            namespace = id.namespace,
                            name = id.name,
                            cause,
                            "cannot read a Secret"
                        );
                        logged.insert(id, cause);
                    }
                }
            }
        }
        if sent.as_ref() != Some(&known) {
            let secrets = CertificateSecrets(known.clone());
            if changes.send((Resource::CertificateSecret, Change::Certificates(secrets))).await.is_err() {
                return;
            }
            sent = Some(known.clone());
        }
        tokio::select! {
            changed = names.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Reason for which a Secret cannot be read.
struct Unreadable {
    /// True if the API server denies the request, and false if the contents of the Secret are not known.
    is_denied: bool,
    cause: String,
}

/// Reads a Secret; `None` if it does not exist.
async fn read(client: &Client, id: &Id) -> Result<Option<Value>, Unreadable> {
    let api = Api::<Secret>::namespaced(client.clone(), &id.namespace);
    let unknown = |cause| Unreadable { is_denied: false, cause };
    match tokio::time::timeout(TIMEOUT, api.get_opt(&id.name)).await {
        Ok(Ok(found)) => Ok(found.map(|secret| value(id, secret))),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            let Id { namespace, name } = id;
            let cause = format!(
                "permission denied: a Role in namespace {namespace} must allow `get` of the Secret {name}"
            );
            Err(Unreadable { is_denied: true, cause })
        }
        Ok(Err(error)) => Err(unknown(words(&error))),
        Err(elapsed) => Err(unknown(elapsed.to_string())),
    }
}

/// Returns the parts of a Secret that are translated, so that other changes cause no work.
fn value(id: &Id, secret: Secret) -> Value {
    let data = serde_json::to_value(secret.data.unwrap_or_default()).unwrap_or_default();
    json!({
        "kind": "Secret", "type": secret.type_, "data": data,
        "metadata": { "namespace": id.namespace, "name": id.name },
    })
}
