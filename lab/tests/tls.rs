//! A cluster as it is off loopback: control speaks TLS and asks everybody, nodes join with a token and renew by themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use lab::{
    client::at,
    cluster::{Cluster, Options},
    wait,
};
use serde_json::json;

/// Life of the agents' certificates: they renew after ten seconds and a bit.
const LIFE_SECS: u32 = 15;

fn expires(cluster: &Cluster) -> String {
    let state = cluster.agent_state("node1").unwrap();
    state["certificateExpires"].as_str().unwrap_or_else(|| panic!("no certificate: {state:#}")).to_owned()
}

fn serial(cluster: &Cluster) -> Option<String> {
    let agents = cluster.api.get_json("/v1/agents").unwrap();
    let agent = &agents["items"][0];
    (agent["isValid"] == true).then(|| agent["serial"].to_string())
}

/// A node joins with a token, its Service is programmed, its certificate is renewed while nothing stops; when it is taken back,
/// traffic goes on, and the node joins again with another token by itself.
#[test]
fn a_node_joins_by_tls_is_programmed_and_renews_its_certificate_while_everything_goes_on() {
    let options = Options { nodes: 1, certificate_secs: Some(LIFE_SECS), ..Options::default() };
    let mut cluster = Cluster::start(&options).unwrap();
    // Should this machine be too busy to renew within such a short life, the node joins again.
    cluster.join_token("node1").unwrap();
    cluster.add_backend("web-1", "node1", 11, "web").unwrap();
    cluster.add_place("inside", "node1", 50).unwrap();
    let spec = |port: u16| json!({"selector": {"app": "web"}, "ports": [{"port": port, "targetPort": 8080}]});
    cluster.add_service("web", spec(80)).unwrap();
    cluster.wait_verified("default/web").unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    cluster.tcp("inside", to).unwrap();

    let counted = |cluster: &Cluster| {
        ["objectsReceived", "kernelTransactions"].map(|name| cluster.agent_counter("node1", name).unwrap())
    };
    let (first, before) = (expires(&cluster), counted(&cluster));
    wait::until_true("the certificate to be renewed", || expires(&cluster) != first).unwrap();
    cluster.tcp("inside", to).unwrap();
    assert_eq!(counted(&cluster), before, "nothing was sent again, nothing programmed");
    // The key is in no log.
    let identity = std::fs::read_to_string(cluster.state_directory("node1").join("identity.pem")).unwrap();
    let key = identity.lines().nth(1).unwrap();
    for process in [&cluster.server, &cluster.agents["node1"]] {
        assert!(!process.log_tail().contains(key));
    }

    cluster.join_token("node1").unwrap();
    let revoked = cluster.api.send("DELETE", "/v1/agents/node1/certificate", &[], String::new()).unwrap();
    assert_eq!((revoked.status, serial(&cluster)), (204, None));
    cluster.tcp("inside", to).unwrap();
    wait::until_true("the node to join again", || serial(&cluster).is_some()).unwrap();
    cluster.add_service("late", spec(81)).unwrap();
    cluster.wait_verified("default/late").unwrap();
}
