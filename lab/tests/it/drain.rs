//! Tests of draining backends while clients send traffic, with the commands that an operator uses.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]
#![allow(clippy::print_stdout, reason = "how long it takes is printed, never asserted")]

mod transfers;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use lab::{
    cluster::deployment::{Cluster, Options},
    host::{guest, modes, wait},
    network::client::{self, Connection, at},
    processes::binaries,
};
use serde_json::{Value, json};

/// Pause between two connections of a client.
const PAUSE: Duration = Duration::from_millis(5);
const TRAFFIC: &str = "/v1/namespaces/default/services/web/traffic";

/// Starts one node in nftables mode and one in iptables mode, each with a client behind it, and a Service
/// `web` with `backends`, each given as name, node and last octet. Returns the cluster and the frontend of
/// the Service.
fn web(backends: &[(&str, &str, u8)]) -> (Cluster, SocketAddr) {
    let modes = vec!["nftables", "iptables"];
    let mut cluster = Cluster::start(&Options { nodes: 2, modes, ..Options::default() }).unwrap();
    cluster.add_place("near1", "node1", 50).unwrap();
    cluster.add_place("near2", "node2", 50).unwrap();
    for (name, node, host) in backends {
        cluster.add_backend(name, node, *host, "web").unwrap();
    }
    // Backends removed without a drain have their connections reset.
    let spec = json!({
        "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }], "removalPolicy": "reset",
    });
    cluster.add_service("web", spec).unwrap();
    let to = at(cluster.cluster_ip("default/web", 0).unwrap(), 80);
    (cluster, to)
}

fn tidegate(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<String> {
    let program = binaries::find("tidegate")?;
    let arguments = [&["--api", cluster.api.url()], arguments].concat();
    cluster.place("control")?.run(&program.display().to_string(), &arguments)
}

/// Results of all connections of the clients, which connect in a loop.
#[derive(Default)]
struct Met {
    names: BTreeSet<String>,
    failures: Vec<String>,
}

/// While each backend is drained, removed and replaced in turn, no connection of the clients in either mode
/// fails, and every backend is reached.
#[test]
fn f028_a_client_sees_no_failure_while_all_backends_are_replaced_one_by_one_with_draining() {
    let (mut cluster, to) = web(&[("web-1", "node1", 11), ("web-2", "node2", 12)]);
    let (met, is_over) = (Arc::new(Mutex::new(Met::default())), Arc::new(AtomicBool::new(false)));
    let loops = ["near1", "near2"].map(|place| {
        let (met, is_over) = (Arc::clone(&met), Arc::clone(&is_over));
        let namespace = cluster.place(place).unwrap().clone();
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let outcome = client::tcp(&namespace, to);
                // The servers, threads of this process, must keep up.
                std::thread::sleep(PAUSE);
                let mut met = met.lock().unwrap();
                match outcome {
                    Ok(reply) => {
                        met.names.insert(reply.backend);
                    }
                    Err(error) => met.failures.push(format!("from {}: {error:#}", namespace.name())),
                }
            }
        })
    });
    for (old, new, node, host) in [("web-1", "web-3", "node1", 13), ("web-2", "web-4", "node2", 14)] {
        wait::until_true(&format!("{old} to be met"), || met.lock().unwrap().names.contains(old)).unwrap();
        cluster.add_backend(new, node, host, "web").unwrap();
        cluster.wait_verified("default/web").unwrap();
        let said = tidegate(&cluster, &["drain", "workload", old, "--reason", "replaced", "--wait"]).unwrap();
        assert_eq!(said, format!("workload/{old} drains\nno connection is left\n"));
        cluster.delete(&format!("namespaces/default/workloads/{old}")).unwrap();
        cluster.topology.stop_serving(old);
        wait::until_true(&format!("{new} to be met"), || met.lock().unwrap().names.contains(new)).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    for one in loops {
        one.join().unwrap();
    }
    let met = met.lock().unwrap();
    assert_eq!(met.failures, Vec::<String>::new());
    assert_eq!(met.names.iter().collect::<Vec<_>>(), ["web-1", "web-2", "web-3", "web-4"]);
}

/// While one connection from each node is open, the API and the metrics report its packets and bytes and
/// count it as open. A drain of the backend waits for these connections and reports their nodes. The deadline
/// of a second drain resets the connections and ends the drain.
#[test]
fn f086_open_connections_packets_and_bytes_are_told_and_a_drain_waits_for_them() {
    let (cluster, to) = web(&[("web-1", "node1", 11)]);
    let mut held =
        ["near1", "near2"].map(|place| Connection::open(cluster.place(place).unwrap(), to).unwrap());
    for connection in &mut held {
        connection.exchange(&"x".repeat(1000)).unwrap();
    }
    let traffic: Value = wait::until("what the connections carry to be reported", || {
        let traffic = cluster.api.get_json(TRAFFIC)?;
        for node in ["node1", "node2"] {
            let total = &traffic["nodes"][node]["total"];
            ensure!(total["connections"] == 1 && total["active"] == 1, "{traffic:#}");
            ensure!(
                total["bytes"].as_u64() > Some(2000) && total["packets"].as_u64() > Some(4),
                "{traffic:#}"
            );
        }
        Ok(traffic)
    })
    .unwrap();
    assert_eq!(traffic["total"]["active"], 2);
    let metrics = cluster.api.get("/metrics").unwrap().text;
    let line = r#"tidegate_service_active_connections{namespace="default",service="web"} 2"#;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
    let agent = cluster.agent("node1").unwrap().get("/metrics").unwrap().text;
    documents_name_what_is_there(&[metrics, agent, dns_metrics()]);

    let drain = ["drain", "workload", "web-1", "--wait"];
    let waited = tidegate(&cluster, &[&drain[..], &["--wait-timeout", "3s"]].concat()).unwrap_err();
    let waited = format!("{waited:#}");
    assert!(waited.contains("2 connections left: node1 1, node2 1"), "{waited}");
    assert!(waited.contains("2 connections are left after 3 s"), "{waited}");
    for connection in &mut held {
        connection.exchange("it may finish").unwrap();
    }
    let status = cluster.service("default/web").unwrap();
    let counts = &status["status"]["endpoints"];
    assert_eq!((&counts["draining"], &counts["ready"]), (&json!(2), &json!(0)), "{status:#}");
    assert!(cluster.tcp("near1", to).is_err(), "there is nothing else to go to");

    let said = tidegate(&cluster, &[&drain[..], &["--deadline", "1s"]].concat()).unwrap();
    assert!(said.ends_with("no connection is left\n"), "{said}");
    for connection in &mut held {
        assert!(connection.exchange("the deadline has passed").is_err());
    }
    tidegate(&cluster, &["undrain", "workload", "web-1"]).unwrap();
    cluster.wait_verified("default/web").unwrap();
    assert_eq!(cluster.tcp("near1", to).unwrap().backend, "web-1");
}

/// F028: long transfers continue during the drain of their backend until the deadline of the drain resets the
/// remaining ones, on three nodes in nftables, iptables and userspace mode.
#[test]
fn f028_long_transfers_outlast_a_drain_in_every_mode_and_its_deadline_cuts_what_is_left() {
    transfers::outlast_a_drain_until_its_deadline(&modes::NATIVE);
}

/// F028: long transfers continue during the drain of their backend until the deadline of the drain resets the
/// remaining ones, in ipvs mode, in the guest VM whose kernel has IPVS.
#[test]
fn f028_long_transfers_outlast_a_drain_in_ipvs_mode_and_its_deadline_cuts_what_is_left() {
    guest::run(
        "drain::f028_long_transfers_outlast_a_drain_in_ipvs_mode_and_its_deadline_cuts_what_is_left",
        || {
            transfers::outlast_a_drain_until_its_deadline(&modes::GUEST);
        },
    );
}

/// Metrics that neither the dashboard nor an alert uses, each with the reason; a name that ends with `_` is a
/// prefix.
const SHOWN_NOWHERE: [(&str, &str); 13] = [
    ("tidegate_otlp_", "the collector shows the spans; a loss is logged"),
    ("tidegate_agent_otlp_", "as those of the control server"),
    (
        "tidegate_agent_kernel_bytes",
        "what changes cost is a matter of benchmarks; messages and transactions are shown",
    ),
    ("tidegate_epoch", "a number that says nothing on an axis; the revision is shown"),
    (
        "tidegate_service_inactive_connections",
        "a panel shows those of the cluster; a Service has those that are open",
    ),
    ("tidegate_endpoint_inactive_connections", "as those of a Service"),
    ("tidegate_endpoint_packets", "a Service has its packets, an endpoint its bytes"),
    (
        "tidegate_agent_service_",
        "the sums over all nodes are shown; these are for who collects from one node",
    ),
    ("tidegate_expired_certificates_", "agents return after a long outage; log and audit name the nodes"),
    ("tidegate_certificate_", "orders at ACME servers; a panel shows the ends of the validity"),
    (
        "tidegate_agent_policy_",
        "drops are usual where policies isolate workloads; failures are warnings of the Node",
    ),
    (
        "tidegate_dns_upstream_original_spellings",
        "usually 0; the explanation of a name shows the upstream servers concerned",
    ),
    ("tidegate_health_words", "how much the server remembers; what it had to forget is shown"),
];
/// Metrics that appear only after events that do not occur in this test.
const NOT_HERE: [&str; 16] = [
    "tidegate_store_commits",
    "tidegate_store_conflicts",
    "tidegate_store_in_doubt",
    "tidegate_store_calls",
    "tidegate_store_failed_calls",
    "tidegate_store_folded_commits",
    "tidegate_store_commit_seconds",
    "tidegate_agent_certificate_expires",
    "tidegate_agent_health_checks",
    "tidegate_agent_relay_heap_in_use_bytes",
    "tidegate_bgp_sessions",
    "tidegate_bgp_prefixes_sent",
    "tidegate_bgp_prefixes_received",
    "tidegate_endpoint_failed_connections",
    "tidegate_dns_cache_entries",
    "tidegate_gateway_certificate_not_after_seconds",
];

/// Returns the metrics of DNS servers in the form of `/metrics`, from their reference page, which tests keep complete.
fn dns_metrics() -> String {
    let page = include_str!("../../../docs/reference/metrics-tidegate-dns.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let metrics = rows.map(|(name, rest)| {
        let kind = rest.split(' ').next().unwrap_or_default();
        format!("# TYPE {} {kind}\n", name.strip_suffix("_total").unwrap_or(name))
    });
    metrics.collect()
}

/// Checks the metrics against the documentation: every metric in the dashboard and the alerts exists, every
/// existing metric is used in one of them or listed in [`SHOWN_NOWHERE`], and every alert has a documentation
/// page.
fn documents_name_what_is_there(metrics: &[String]) {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/observability");
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let (dashboard, alerts) = (read("dashboard.json"), read("alerts.yaml"));
    let parsed: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = parsed["panels"].as_array().unwrap();
    let expressions = |panel: &Value| panel["targets"].as_array().map_or(0, Vec::len);
    assert!(
        panels.iter().all(|panel| panel["type"] == "row" || expressions(panel) > 0),
        "a panel shows nothing"
    );
    let known: BTreeSet<&str> = metrics
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    // Counters and the parts of a histogram have suffixed names.
    let family = |name: &str| {
        let ends = ["_total", "_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
    };
    let mut named = BTreeSet::<String>::new();
    for text in [&dashboard, &alerts] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("tidegate_")) {
            let family = if known.contains(name) { name.to_owned() } else { family(name) };
            let is_known = known.contains(family.as_str()) || NOT_HERE.contains(&family.as_str());
            assert!(is_known, "{name} is no metric of a server: {known:?}");
            named.insert(family);
        }
    }
    let is_excused = |name: &str| {
        let mut excuses = SHOWN_NOWHERE.iter().map(|(excuse, _)| *excuse);
        excuses.any(|excuse| name == excuse || (excuse.ends_with('_') && name.starts_with(excuse)))
    };
    for name in known {
        let is_shown = named.contains(name);
        assert!(is_shown || is_excused(name), "no panel and no alert shows {name}, and no reason is given");
        assert!(!(is_shown && is_excused(name)), "{name} is shown all the same");
    }
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let page = directory.join("runbooks").join(format!("{alert}.md"));
        assert!(page.is_file(), "{alert} has no page {}", page.display());
        assert!(alerts.contains(&format!("runbooks/{alert}.md")), "{alert} does not name its page");
    }
    let configuration = read("prometheus.yaml");
    for job in alerts.split("job=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(configuration.contains(&format!("job_name: {job}\n")), "prometheus.yaml has no job {job}");
    }
}
