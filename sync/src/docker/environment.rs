//! Files with the environment variables of Services, one for each namespace with containers, for `docker run --env-file`
//! and `env_file` of compose files. Engines read such a file when a container is created.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use model::primitives::name::Namespace;
use serde_json::Value;
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{
    control::{Control, Request},
    wanted::DesiredObjects,
};

/// Interval at which the variables of each namespace are read again. The control server computes them anew for every reading,
/// from all Services of the namespace.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Directory of the files, and the sources of their contents.
pub(super) struct EnvironmentFiles {
    /// Directory of the files `NAMESPACE.env`; created if it does not exist.
    pub(super) directory: PathBuf,
    /// Namespace that has a file even without containers.
    pub(super) namespace: Namespace,
    /// Objects of the containers, whose namespaces have files.
    pub(super) wanted: watch::Receiver<DesiredObjects>,
    /// Connection to the control servers.
    pub(super) control: Arc<Control>,
    /// Signal that ends the updates. The files stay.
    pub(super) stop: CancellationToken,
}

impl EnvironmentFiles {
    /// Keeps the files equal to the variables of their namespaces. While the control servers cannot be read, and while a
    /// namespace has too many variables, a file keeps its last content. Each error is logged once.
    pub(super) async fn keep(self) {
        let mut written: BTreeMap<Namespace, String> = BTreeMap::new();
        let mut errors: BTreeMap<Namespace, String> = BTreeMap::new();
        let mut ticks = tokio::time::interval(READ_AGAIN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return,
            }
            for namespace in self.namespaces() {
                let result = self.update(&namespace, written.get(&namespace)).await;
                match result {
                    Ok(Some(text)) => {
                        written.insert(namespace.clone(), text);
                        errors.remove(&namespace);
                    }
                    Ok(None) => {
                        errors.remove(&namespace);
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        if errors.get(&namespace) != Some(&error) {
                            tracing::warn!(%namespace, error, "the file of environment variables is not updated");
                            errors.insert(namespace.clone(), error);
                        }
                    }
                }
            }
        }
    }

    fn namespaces(&self) -> BTreeSet<Namespace> {
        let wanted = self.wanted.borrow();
        let of_objects = wanted.objects.keys().filter_map(|key| key.namespace.clone());
        of_objects.chain([self.namespace.clone()]).collect()
    }

    /// Writes the file of a namespace if its variables differ from `before`, and returns the new content.
    async fn update(&self, namespace: &Namespace, before: Option<&String>) -> anyhow::Result<Option<String>> {
        let path = format!("/v1/namespaces/{namespace}/env");
        let request = Request::get(&path).query("format", Some("docker".to_owned()));
        let text = lines(&self.control.send(&request).await?);
        if before == Some(&text) {
            return Ok(None);
        }
        write(&self.directory, namespace, &text)?;
        Ok(Some(text))
    }
}

/// Returns the variables of a reply, each on a line.
fn lines(variables: &Value) -> String {
    let variables = variables.as_array().into_iter().flatten().filter_map(Value::as_str);
    variables.map(|variable| format!("{variable}\n")).collect()
}

/// Replaces the file of a namespace. Readers see the old content or the new one, never a part.
fn write(directory: &Path, namespace: &Namespace, text: &str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let new = directory.join(format!(".{namespace}.env.new"));
    fs::write(&new, text)?;
    fs::rename(new, directory.join(format!("{namespace}.env")))
}
