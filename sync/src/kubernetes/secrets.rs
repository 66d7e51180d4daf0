//! Reads the Secrets with the passwords of BGP peers, and no others: by name, each in the namespace of its
//! BGPPeer. This requires only `get` permission for named Secrets; listing would expose every Secret of a
//! namespace.
//!
//! Invariants: no password appears in a log or in a reported problem; a session that has a password
//! neither loses it nor ends because the API server is unreachable.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};

use super::{
    resource::Resource,
    state::{Change, Id},
    translate::passwords::{ENTRY, Passwords, SecretValue, judge},
    words,
};

/// Poll interval of the Secrets, and so the maximum delay until a changed password is used.
const LOOK: Duration = Duration::from_secs(5);
/// Timeout of reading one Secret.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the Secrets that `names` contains, periodically and when the names change. Sends the passwords to
/// `changes`, until its receiver is closed. At startup nothing is mirrored until each Secret has been read;
/// the log names an unreadable Secret.
pub(super) async fn follow(
    client: Client,
    mut names: watch::Receiver<Option<BTreeSet<Id>>>,
    changes: mpsc::Sender<(Resource, Change)>,
) {
    let mut known = Passwords::new();
    let mut has_begun = false;
    let mut said = BTreeMap::<Id, String>::new();
    loop {
        // The names are known once the BGPPeers have been listed.
        let Some(wanted) = names.borrow_and_update().clone() else {
            if names.changed().await.is_err() {
                return;
            }
            continue;
        };
        known.retain(|id, _| wanted.contains(id));
        said.retain(|id, _| wanted.contains(id));
        for id in &wanted {
            let read = read(&client, id).await;
            if read.is_ok() {
                said.remove(id);
            }
            if let Err(cause) = &read
                && said.get(id) != Some(cause)
            {
                tracing::warn!(namespace = id.namespace, name = id.name, cause, "cannot read a Secret");
                said.insert(id.clone(), cause.clone());
            }
            // A session protected by an earlier process must not end because the API server is unreachable
            // now.
            if has_begun || read.is_ok() {
                let new = judge(known.get(id), read);
                known.insert(id.clone(), new);
            }
        }
        has_begun |= wanted.iter().all(|id| known.contains_key(id));
        if changes.send((Resource::Secret, Change::Passwords(known.clone()))).await.is_err() {
            return;
        }
        tokio::select! {
            changed = names.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Reads a Secret; `None` if it does not exist.
async fn read(client: &Client, id: &Id) -> Result<Option<SecretValue>, String> {
    let api = Api::<Secret>::namespaced(client.clone(), &id.namespace);
    match tokio::time::timeout(PATIENCE, api.get_opt(&id.name)).await {
        Ok(Ok(found)) => Ok(found.map(password)),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(format!(
            "permission denied: a Role in namespace {} must allow `get` of the Secret {}",
            id.namespace, id.name
        )),
        Ok(Err(error)) => Err(words(&error)),
        Err(elapsed) => Err(elapsed.to_string()),
    }
}

fn password(secret: Secret) -> SecretValue {
    let password = secret.data.unwrap_or_default().remove(ENTRY).unwrap_or_default().0;
    SecretValue { of_type: secret.type_.unwrap_or_default(), password }
}
