//! Control server with Services and Nodes, and the requests that change endpoints.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::{Context, Result};
use lab::{
    cluster::control::{Http, string},
    host::{netns::Namespace, scratch::Scratch},
    load::{
        feed_load::{self as fleet, Position},
        http_load::HttpRequestSpec,
    },
    processes::{
        binaries,
        process::{Plan, Process},
    },
};

use serde_json::{Value, json};

/// Listening address of the control server inside its namespace.
pub(super) const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7440);
/// Number of objects per request; the server accepts up to 5,000 objects and 8 MiB.
const BATCH: usize = 1_000;
/// Address of the first endpoint; later endpoints follow consecutively.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 128, 0, 0]);

/// Control server with all objects of the benchmark.
pub(super) struct Scene {
    pub(super) namespace: Namespace,
    pub(super) server: Process,
    pub(super) api: Http,
    /// Position in the server's stream of changes after all objects were written; receivers resume from it.
    pub(super) position: Position,
    services: u32,
    endpoints: u8,
    _directory: Scratch,
}

impl Scene {
    pub(super) fn start(services: u32, endpoints: u8, nodes: u16) -> Result<Self> {
        // On disk, not in memory: every change is durable before it is delivered.
        let directory = Scratch::new("bench")?;
        let namespace = Namespace::new("fanout")?;
        let mut server = Process::start(Plan {
            label: "tidegate-api".to_owned(),
            namespace: namespace.clone(),
            program: binaries::find("tidegate-api")?,
            arguments: vec![
                format!("--listen={CONTROL}"),
                format!("--store=sqlite:{}", directory.path().join("control.sqlite").display()),
                "--service-cidr=10.96.0.0/12".to_owned(),
                "--guard-vips-percent=100".to_owned(),
                "--guard-endpoints-percent=100".to_owned(),
            ],
            environment: Vec::new(),
            log: directory.path().join("control.log"),
        })?;
        let api = Http::new(&namespace, CONTROL);
        server.wait_ready(|| api.get("/readyz")?.success().map(drop))?;
        let mut objects: Vec<Value> = (0..nodes).map(node).collect();
        objects.extend((0..services).flat_map(|number| [service(number), endpoint_set(number, endpoints)]));
        let mut position = Position::default();
        for batch in objects.chunks(BATCH) {
            let answer = api.send_json("POST", "/v1/apply", &Value::from(batch))?.success()?.json();
            let text = string(&answer, "/position")?;
            position = text.parse().map_err(|why| anyhow::anyhow!("position {text}: {why}"))?;
        }
        Ok(Self { namespace, server, api, position, services, endpoints, _directory: directory })
    }

    /// Returns the request of change `number`: a patch of the endpoints of one Service, rotating over the
    /// Services.
    pub(super) fn change(&self, number: u32) -> HttpRequestSpec {
        let first = number.wrapping_mul(u32::from(self.endpoints)) % (1 << 22);
        let endpoints: Vec<Value> = (0..self.endpoints).map(|at| address((1 << 22) + first, at)).collect();
        HttpRequestSpec {
            method: "PATCH",
            // Consecutive changes affect Services that are far apart in name order.
            path: format!(
                "/v1/namespaces/default/endpointsets/{}",
                name(number.wrapping_mul(7919) % self.services)
            ),
            content_type: "application/merge-patch+json",
            body: json!({"spec": {"endpoints": endpoints}}).to_string(),
        }
    }

    /// Returns a counter of the server by its metric name.
    pub(super) fn counter(&self, name: &str) -> Result<u64> {
        let text = self.api.get("/metrics")?.success()?.text;
        let wanted = format!("tidegate_{name}_total ");
        let line = text.lines().find_map(|line| line.strip_prefix(&wanted));
        let value = line.with_context(|| format!("no counter {wanted}"))?;
        value.trim().parse().with_context(|| format!("{wanted} is {value}"))
    }

    /// Resets the kernel's record of the server's peak memory (`VmHWM`).
    pub(super) fn forget_peak(&self) -> Result<()> {
        let pid = self.server.pid().context("the server is not running")?;
        fs::write(format!("/proc/{pid}/clear_refs"), "5").context("cannot reset the peak memory")
    }
}

fn name(service: u32) -> String {
    format!("service-{service:05}")
}

fn address(first: u32, at: u8) -> Value {
    json!({"address": Ipv4Addr::from(FIRST_ADDRESS + first + u32::from(at))})
}

fn node(number: u16) -> Value {
    let [high, low] = number.to_be_bytes();
    let address = Ipv4Addr::new(172, 16 + high, low, 10);
    json!({"kind": "Node", "metadata": {"name": fleet::node(number)}, "spec": {"addresses": [address]}})
}

fn service(number: u32) -> Value {
    json!({"kind": "Service", "metadata": {"name": name(number)}, "spec": {"ports": [{"port": 80, "targetPort": 8080}]}})
}

fn endpoint_set(number: u32, endpoints: u8) -> Value {
    let first = number * u32::from(endpoints);
    let endpoints: Vec<Value> = (0..endpoints).map(|at| address(first, at)).collect();
    json!({"kind": "EndpointSet", "metadata": {"name": name(number)}, "spec": {"service": name(number), "endpoints": endpoints}})
}
