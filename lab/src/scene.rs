//! Backends on a [`Cluster`]: a network, a server and the Workload record that says so, put up and taken away together.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{cluster::Cluster, control::Answer};

/// The port on which backends of a scene listen.
pub const BACKEND_PORT: u16 = 8080;

impl Cluster {
    /// Puts up a backend: a workload that listens on [`BACKEND_PORT`] and carries the label `app`. Its record is applied.
    ///
    /// # Errors
    /// The name or address is taken, or the record is refused.
    pub fn add_backend(&mut self, name: &str, node: &str, host: u8, app: &str) -> Result<()> {
        self.add_place(name, node, host)?;
        self.topology.serve(name, BACKEND_PORT)?;
        let record = self.workload_record(name, app)?;
        self.apply_objects(&[record]).map(drop)
    }

    /// Puts up a workload that serves nothing and has no record: a place for clients inside the cluster.
    ///
    /// # Errors
    /// The name or address is taken.
    pub fn add_place(&mut self, name: &str, node: &str, host: u8) -> Result<()> {
        self.topology.add_workload(name, node, host)
    }

    /// The Workload object of a backend.
    ///
    /// # Errors
    /// There is no such workload.
    pub fn workload_record(&self, name: &str, app: &str) -> Result<Value> {
        let workload =
            self.topology.workloads.get(name).with_context(|| format!("there is no workload {name}"))?;
        Ok(json!({
            "apiVersion": "tidegate/v1",
            "kind": "Workload",
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {
                "addresses": workload.addresses,
                "node": workload.node,
                "ports": {"web": {"port": BACKEND_PORT}, "dns": {"protocol": "UDP", "port": BACKEND_PORT}},
            },
        }))
    }

    /// Deletes an object by its path below `/v1`.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn delete(&self, path: &str) -> Result<Answer> {
        self.api.send("DELETE", &format!("/v1/{path}"), &[], String::new())?.success()
    }

    /// Changes an object by a JSON merge patch, by its path below `/v1`.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Answer> {
        let headers = [("content-type", "application/merge-patch+json")];
        self.api.send("PATCH", &format!("/v1/{path}"), &headers, patch.to_string())?.success()
    }

    /// Adds a Service of namespace `default` and waits until every node has it.
    ///
    /// # Errors
    /// It is refused, or a node never has it.
    #[expect(clippy::needless_pass_by_value, reason = "callers write the spec in place")]
    pub fn add_service(&self, name: &str, spec: Value) -> Result<()> {
        let service =
            json!({"apiVersion": "tidegate/v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        self.apply_objects(&[service])?;
        self.wait_verified(&format!("default/{name}"))
    }
}
