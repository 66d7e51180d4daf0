//! Helpers of a [`Cluster`] for load balancer addresses: they wait for allocation, return the node that
//! announces an address, and send requests to it.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use model::kinds::address::name_of;
use serde_json::{Value, json};

use crate::{
    cluster::{control::string, deployment::Cluster},
    host::wait,
    network::client::at,
};

/// Port on which web workloads serve HTTP.
pub const WEB_PORT: u16 = 80;

impl Cluster {
    /// Adds a workload that serves HTTP on [`WEB_PORT`], and its Workload object with the label `app`.
    ///
    /// # Errors
    /// Returns an error if the name or address is in use, or if the server rejects the object.
    pub fn add_web(&mut self, name: &str, node: &str, host: u8, app: &str) -> Result<()> {
        self.add_place(name, node, host)?;
        self.topology.serve_pages(name, WEB_PORT)?;
        let mut record = self.workload_record(name, app)?;
        record["spec"]["ports"] = json!({"web": {"port": WEB_PORT}});
        self.apply_objects(&[record]).map(drop)
    }

    /// Waits until a Service has a load balancer address, and returns the first one.
    ///
    /// # Errors
    /// Returns the status of the Service if no address is allocated in time.
    pub fn wait_load_balancer_ip(&self, key: &str) -> Result<IpAddr> {
        wait::until(&format!("Service {key} to have a load balancer address"), || {
            let service = self.service(key)?;
            let ip = string(&service, "/status/loadBalancer/ingress/0/ip");
            Ok(ip.with_context(|| format!("status: {:#}", service["status"]))?.parse()?)
        })
    }

    /// Returns the API object that describes an allocated address.
    ///
    /// # Errors
    /// Returns an error if the address is not allocated.
    pub fn address(&self, address: IpAddr) -> Result<Value> {
        self.object(&format!("addresses/{}", name_of(address)))
    }

    /// Waits until a node reports itself as the owner (announcer) of `address` and `wanted` returns true for
    /// its name. Returns the name of the node.
    ///
    /// # Errors
    /// Returns the address object if no such node reports in time.
    pub fn wait_owner(&self, address: IpAddr, wanted: impl Fn(&str) -> bool) -> Result<String> {
        wait::until(&format!("a node to announce {address}"), || {
            let record = self.address(address)?;
            let owner = string(&record, "/status/owner").with_context(|| format!("record: {record:#}"))?;
            ensure!(wanted(&owner), "{owner} announces it: {record:#}");
            Ok(owner)
        })
    }

    /// Waits until `node` is the only node that reports itself as owner (announcer) of `address`, and the
    /// external client has resolved the address to the link-layer address of that node. The client needs a
    /// neighbor entry for the address, so it must have connected before.
    ///
    /// # Errors
    /// Returns the last observed state if the takeover does not complete in time.
    pub fn wait_moved(&self, address: IpAddr, node: &str) -> Result<()> {
        wait::until(&format!("only {node} to announce {address}"), || {
            let record = self.address(address)?;
            let parts = record.pointer("/status/nodes").and_then(Value::as_object);
            let owners = parts.into_iter().flatten().filter(|(_, part)| part["role"] == "Owner");
            let owners: Vec<_> = owners.map(|(name, _)| name.as_str()).collect();
            ensure!(owners == [node], "record: {record:#}");
            Ok(())
        })?;
        let mac = self.place(node)?.mac("eth0")?;
        wait::until(&format!("the client to resolve {address} to {node}"), || {
            let learnt = self.topology.client.run("ip", &["neigh", "show", &address.to_string()])?;
            ensure!(learnt.contains(&mac), "{node} has {mac}, the client has {learnt}");
            Ok(())
        })
    }

    /// Requests a page at `address` with `curl`, from the namespace of the location `from` (such as
    /// `client`), and returns the body of the response.
    ///
    /// # Errors
    /// Returns the stderr of `curl` if it fails.
    pub fn curl(&self, from: &str, address: IpAddr) -> Result<String> {
        let url = format!("http://{}/", at(address, WEB_PORT));
        let page = self.place(from)?.run("curl", &["-sS", "--noproxy", "*", "--max-time", "5", &url])?;
        Ok(page.trim_end().to_owned())
    }
}
