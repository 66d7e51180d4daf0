//! Words about load balancer addresses on a [`Cluster`]: which a Service has, which node announces it, who answers there.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use model::kinds::address::name_of;
use serde_json::{Value, json};

use crate::{
    cluster::{control::string, deployment::Cluster},
    host::wait,
    network::client::at,
};

/// The port of web servers.
pub const WEB_PORT: u16 = 80;

impl Cluster {
    /// Puts up a workload with a web server on [`WEB_PORT`], and its record with the label `app`.
    ///
    /// # Errors
    /// The name or address is taken, or the record is refused.
    pub fn add_web(&mut self, name: &str, node: &str, host: u8, app: &str) -> Result<()> {
        self.add_place(name, node, host)?;
        self.topology.serve_pages(name, WEB_PORT)?;
        let mut record = self.workload_record(name, app)?;
        record["spec"]["ports"] = json!({"web": {"port": WEB_PORT}});
        self.apply_objects(&[record]).map(drop)
    }

    /// The first load balancer address of a Service, once it has one.
    ///
    /// # Errors
    /// It never gets one; its status is in the error.
    pub fn wait_load_balancer_ip(&self, key: &str) -> Result<IpAddr> {
        wait::until(&format!("Service {key} to have a load balancer address"), || {
            let service = self.service(key)?;
            let ip = string(&service, "/status/loadBalancer/ingress/0/ip");
            Ok(ip.with_context(|| format!("status: {:#}", service["status"]))?.parse()?)
        })
    }

    /// The record of an address.
    ///
    /// # Errors
    /// Nobody has it.
    pub fn address(&self, address: IpAddr) -> Result<Value> {
        self.object(&format!("addresses/{}", name_of(address)))
    }

    /// The node that says that it announces an address, once one does and `wanted` holds for its name.
    ///
    /// # Errors
    /// No such node ever does; the record is in the error.
    pub fn wait_owner(&self, address: IpAddr, wanted: impl Fn(&str) -> bool) -> Result<String> {
        wait::until(&format!("a node to announce {address}"), || {
            let record = self.address(address)?;
            let owner = string(&record, "/status/owner").with_context(|| format!("record: {record:#}"))?;
            ensure!(wanted(&owner), "{owner} announces it: {record:#}");
            Ok(owner)
        })
    }

    /// Waits until a node is the only one that says that it announces an address, and the client outside has learnt that
    /// node's link-layer address for it. The client has to have asked before.
    ///
    /// # Errors
    /// That never comes about; what was seen is in the error.
    pub fn wait_moved(&self, address: IpAddr, node: &str) -> Result<()> {
        wait::until(&format!("only {node} to announce {address}"), || {
            let record = self.address(address)?;
            let parts = record.pointer("/status/nodes").and_then(Value::as_object);
            let owners = parts.into_iter().flatten().filter(|(_, part)| part["role"] == "Owner");
            let owners: Vec<_> = owners.map(|(name, _)| name.as_str()).collect();
            ensure!(owners == [node], "record: {record:#}");
            Ok(())
        })?;
        let mac = self.place(node)?.run("cat", &["/sys/class/net/eth0/address"])?;
        wait::until(&format!("the client to learn that {address} is at {node}"), || {
            let learnt = self.topology.client.run("ip", &["neigh", "show", &address.to_string()])?;
            ensure!(learnt.contains(mac.trim()), "{node} has {mac}, the client has {learnt}");
            Ok(())
        })
    }

    /// Asks for a page with `curl` from a place and returns its text.
    ///
    /// # Errors
    /// `curl` fails; what it said is in the error.
    pub fn curl(&self, from: &str, address: IpAddr) -> Result<String> {
        let url = format!("http://{}/", at(address, WEB_PORT));
        let page = self.place(from)?.run("curl", &["-sS", "--noproxy", "*", "--max-time", "5", &url])?;
        Ok(page.trim_end().to_owned())
    }
}
