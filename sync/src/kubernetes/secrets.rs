//! Reads the Secrets with the passwords of BGP peers, and no others: by name, each in the namespace of the BGPPeer that names it.
//! Reading a named object is all that this needs to be allowed; lists would show every Secret of a namespace.
//!
//! What must not happen: a password in a log or in a finding; a session that was protected goes on without protection, or
//! ends, because the API server is away.

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
    translate::passwords::{ENTRY, Passwords, Read, judge},
    words,
};

/// How often Secrets are read again: a password that was changed is used after this long.
const LOOK: Duration = Duration::from_secs(5);
/// How long the API server may take for one of them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads until nobody listens. At the beginning what cannot be read holds up everything, as with lists; the log names it.
pub(super) async fn follow(
    client: Client,
    mut names: watch::Receiver<Option<BTreeSet<Id>>>,
    changes: mpsc::Sender<(Resource, Change)>,
) {
    let mut known = Passwords::new();
    let mut has_begun = false;
    let mut said = BTreeMap::<Id, String>::new();
    loop {
        // Which there are is known when the BGPPeers have been read.
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
                tracing::warn!(namespace = id.namespace, name = id.name, cause, "a Secret cannot be read");
                said.insert(id.clone(), cause.clone());
            }
            // A session that an earlier process protected is not ended because the server is away now.
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

/// A Secret, nothing where there is none, or why that is not known.
async fn read(client: &Client, id: &Id) -> Result<Option<Read>, String> {
    let api = Api::<Secret>::namespaced(client.clone(), &id.namespace);
    match tokio::time::timeout(PATIENCE, api.get_opt(&id.name)).await {
        Ok(Ok(found)) => Ok(found.map(password)),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(format!(
            "the adapter may not read it: a Role in namespace {} has to allow `get` of the Secret {}",
            id.namespace, id.name
        )),
        Ok(Err(error)) => Err(words(&error)),
        Err(elapsed) => Err(elapsed.to_string()),
    }
}

fn password(secret: Secret) -> Read {
    let password = secret.data.unwrap_or_default().remove(ENTRY).unwrap_or_default().0;
    Read { of_type: secret.type_.unwrap_or_default(), password }
}
