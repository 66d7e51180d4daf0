//! Secrets that a program reads from a control server when the objects change on which they depend, and keeps on disk for
//! restarts.

use std::{collections::BTreeMap, future::Future, time::Duration};

use client::{Backoff, Client, Request};
use model::{
    primitives::quantity::Revision,
    wire::{certificate_keys::CertificateKeyList, dns_keys::DnsKeyList},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use crate::PrivateFile;

/// Minimum delay before the next attempt to read the secrets.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum delay before the next attempt to read the secrets.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Complete list of secrets at one revision of a control server.
pub trait SecretList: Serialize + DeserializeOwned + Send + Sync {
    /// Returns the list of a state without objects that have secrets.
    fn empty() -> Self;

    /// Returns the revision of the state that has these secrets.
    fn revision(&self) -> Revision;
}

impl SecretList for CertificateKeyList {
    fn empty() -> Self {
        Self { revision: Revision(0), keys: Vec::new() }
    }

    fn revision(&self) -> Revision {
        self.revision
    }
}

impl SecretList for DnsKeyList {
    fn empty() -> Self {
        Self { revision: Revision(0), keys: Vec::new() }
    }

    fn revision(&self) -> Revision {
        self.revision
    }
}

/// Program part that knows the objects with secrets, and uses the secrets.
pub trait SecretSink: Send {
    /// List that the control server sends.
    type List: SecretList;
    /// Key of an object on which the list depends.
    type Key: Ord + Send + Sync;

    /// Description of the secrets in messages of the log, such as `keys of DNS zones`.
    const SUBJECT: &'static str;

    /// Returns the request for the list.
    fn request(&self) -> Request;

    /// Returns the objects on which the list depends, with their revisions; `None` until the state is known.
    fn wanted(&mut self) -> Option<BTreeMap<Self::Key, Revision>>;

    /// Waits for a change of the state. Returns false if there will be none.
    fn changed(&mut self) -> impl Future<Output = bool> + Send;

    /// Uses a new list. Returns true if it differs from the last one, and so must be kept on disk.
    fn receive(&mut self, list: &Self::List) -> bool;
}

/// Task that reads the secrets.
#[derive(Debug)]
pub struct SecretFollower<S> {
    client: Client,
    file: Option<PrivateFile>,
    sink: S,
}

impl<S: SecretSink> SecretFollower<S> {
    /// Creates the task, and passes the secrets on disk, if there are some, to `sink`.
    #[must_use]
    pub fn new(client: Client, file: Option<PrivateFile>, mut sink: S) -> Self {
        let stored = file.as_ref().map(PrivateFile::load::<S::List>).transpose();
        let stored = stored.unwrap_or_else(|error| {
            tracing::warn!(%error, "the {} on disk are unusable; waiting for a control server", S::SUBJECT);
            None
        });
        if let Some(list) = stored.flatten() {
            sink.receive(&list);
        }
        Self { client, file, sink }
    }

    /// Reads the secrets after each change of the objects on which they depend, until the task is cancelled.
    pub async fn run(mut self) {
        let mut read = None;
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let wanted = self.sink.wanted();
            if let Some(objects) = wanted.as_ref().filter(|_| wanted != read) {
                match self.read(objects.values().max().copied()).await {
                    Ok(()) => {
                        read = wanted;
                        backoff.reset();
                    }
                    Err(cause) => {
                        tracing::warn!(
                            server = self.client.url(),
                            cause,
                            "cannot read the {}; the last ones stay in use",
                            S::SUBJECT
                        );
                        self.client.use_next();
                        sleep(backoff.next_random_delay()).await;
                        continue;
                    }
                }
            }
            if !self.sink.changed().await {
                return std::future::pending().await;
            }
        }
    }

    /// Reads the list of a state that has the revision `newest` or a later one.
    async fn read(&mut self, newest: Option<Revision>) -> Result<(), String> {
        let list = match newest {
            None => S::List::empty(),
            Some(newest) => {
                let body = self.client.send(&self.sink.request()).await;
                let body = body.map_err(|error| base::chain(&error))?;
                let list: S::List =
                    serde_json::from_value(body).map_err(|_| "the response cannot be decoded".to_owned())?;
                if list.revision() < newest {
                    return Err("the server has an older state".to_owned());
                }
                list
            }
        };
        let is_changed = self.sink.receive(&list);
        if let Some(file) = self.file.as_ref().filter(|_| is_changed)
            && let Err(error) = file.save(&list)
        {
            let directory = file.directory.display();
            tracing::warn!(%error, %directory, "cannot keep the {} on disk", S::SUBJECT);
        }
        Ok(())
    }
}
