//! Part of the demonstration about load balancer addresses: imports an address pool, creates a Service, sends
//! requests from inside and outside of the cluster, and stops the node that announces the address.

use std::{collections::BTreeSet, net::IpAddr, path::Path};

use anyhow::{Context, Result, ensure};
use lab::{
    cluster::{addresses::WEB_PORT, deployment::Cluster},
    host::wait,
    load::outage,
    network::client::at,
};

use super::{Teller, cli, write};

/// MetalLB configuration of the project's requirements document.
const POOL: &str = include_str!("../../../cli/tests/fixtures/import/seed.yaml");

const SERVICE: &str = "\
apiVersion: tidegate/v1
kind: Service
metadata:
  name: nginx-svc
spec:
  selector: {app: nginx}
  ports:
    - {protocol: TCP, port: 80, targetPort: 80}
  type: LoadBalancer
";

/// Runs this part of the demonstration. Returns the load balancer address, behind which `nginx-1` and
/// `nginx-2` serve at the end.
pub(super) fn tell(out: &mut Teller, cluster: &mut Cluster, host: &str, directory: &Path) -> Result<IpAddr> {
    out.chapter("An address from a pool, announced to the network")?;
    for (name, node, number) in [("nginx-1", "node1", 21), ("nginx-2", "node2", 22)] {
        cluster.add_web(name, node, number, "nginx")?;
    }
    cli(out, cluster, host, &["import", "--apply", &write(directory, "metallb.yaml", POOL)?])?;
    cli(out, cluster, host, &["apply", "-f", &write(directory, "nginx.yaml", SERVICE)?])?;
    let address = cluster.wait_load_balancer_ip("default/nginx-svc")?;
    cluster.wait_verified("default/nginx-svc")?;
    cluster.wait_owner(address, |_| true)?;
    cli(out, cluster, host, &["get", "services", "nginx-svc"])?;
    cli(out, cluster, host, &["get", "addresses"])?;
    curl(out, cluster, "client-inside", "inside the cluster", address)?;
    curl(out, cluster, "client", "outside, by ARP and nothing else", address)?;

    out.chapter("The node that has the address vanishes")?;
    let node = cluster.topology.nodes.keys().next_back().context("a lab has nodes")?.clone();
    cli(out, cluster, host, &["move", &address.to_string(), &node])?;
    cluster.wait_moved(address, &node)?;
    out.seen(&format!("{node}, which has no backend, announces {address}"))?;
    let client = cluster.place("client")?.clone();
    let outage = outage::during(&client, at(address, WEB_PORT), || {
        cluster.topology.plug(&node, false)?;
        cluster.wait_owner(address, |owner| owner != node).map(drop)
    })?;
    out.seen(&format!(
        "its cable is pulled; {} ms later another node answers ({} connections before and after, {} failed between)",
        outage.longest_gap.as_millis(),
        outage.answered,
        outage.failed
    ))?;
    cli(out, cluster, host, &["get", "addresses"])?;
    curl(out, cluster, "client", "outside", address)?;
    let owner = cluster.wait_owner(address, |_| true)?;
    cluster.topology.plug(&node, true)?;
    wait::until(&format!("{node} to stand by"), || {
        let record = cluster.address(address)?;
        let role = record.pointer(&format!("/status/nodes/{node}/role"));
        ensure!(role.is_some_and(|role| role == "Standby"), "record: {record:#}");
        Ok(())
    })?;
    ensure!(cluster.wait_owner(address, |_| true)? == owner, "{node} took the address back");
    out.seen(&format!("{node} is back and stands by; {owner} keeps the address"))?;
    Ok(address)
}

/// Sends requests to `address` from the location `from` until every backend has responded, and prints one
/// request as a `curl` command with its output. `how` describes the location.
pub(super) fn curl(
    out: &mut Teller,
    cluster: &Cluster,
    from: &str,
    how: &str,
    address: IpAddr,
) -> Result<()> {
    let mut answered = BTreeSet::new();
    wait::until(&format!("both backends to answer at {address}"), || {
        answered.insert(cluster.curl(from, address)?);
        ensure!(answered.len() == 2, "{answered:?} answered");
        Ok(())
    })?;
    let answered: Vec<_> = answered.iter().map(String::as_str).collect();
    ensure!(answered == ["nginx-1", "nginx-2"], "{answered:?} answered");
    out.seen(&format!("{:<34} {how:<46} {}", format!("{from}$ curl {address}"), answered.join("  ")))
}
