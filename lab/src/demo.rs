//! Script of the lab demonstration, which ends with an error at the first unexpected observation.

mod addresses;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use lab::{
    cluster::deployment::Cluster,
    fixtures::scene::BACKEND_PORT,
    host::wait,
    network::{client::at, topology},
    processes::binaries,
};

/// Number of requests behind each row in a printed table of the backends that replied. The probability that
/// one of two or three backends never replies is below 1e-3.
const REQUESTS: usize = 24;
const EXTERNAL: IpAddr = IpAddr::V4(topology::EXTERNAL_V4);
const NODE_PORT: u16 = 30080;

const MANIFEST: &str = "\
apiVersion: tidegate/v1
kind: Service
metadata:
  name: web
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  externalIPs: [203.0.113.10]
  ports:
    - {name: http, port: 80, targetPort: 8080, nodePort: 30080}
    - {name: dns, protocol: UDP, port: 53, targetPort: 8080}
";

/// Printer that writes the progress of the demonstration to stdout.
pub(crate) struct Teller {
    out: io::Stdout,
}

impl Teller {
    pub(crate) fn new() -> Self {
        Self { out: io::stdout() }
    }

    /// Prints the heading of a chapter of the demonstration.
    pub(crate) fn chapter(&mut self, title: &str) -> Result<()> {
        writeln!(self.out, "\n== {title}")?;
        Ok(self.out.flush()?)
    }

    /// Prints an observation that confirms the previous step.
    pub(crate) fn seen(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "  ok  {text}")?;
        Ok(self.out.flush()?)
    }

    /// Prints the output of a tool, indented.
    fn quote(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            writeln!(self.out, "      {line}")?;
        }
        Ok(self.out.flush()?)
    }
}

/// Runs the whole demonstration on a cluster that has just started. `host` is the address of its control
/// server on this machine.
pub(crate) fn tell(out: &mut Teller, cluster: &mut Cluster, host: &str) -> Result<()> {
    out.chapter("Three backends and a Service, written with the CLI")?;
    for (name, node, number) in [("web-1", "node1", 11), ("web-2", "node1", 12), ("web-3", "node2", 13)] {
        cluster.topology.add_workload(name, node, number)?;
        cluster.topology.serve(name, BACKEND_PORT)?;
    }
    let last_node = cluster.topology.nodes.keys().next_back().context("a lab has nodes")?.clone();
    cluster.add_place("client-inside", &last_node, 50)?;
    let mut manifest = MANIFEST.to_owned();
    for name in ["web-1", "web-2", "web-3"] {
        manifest += &format!("---\n{}\n", cluster.workload_record(name, "web")?);
    }
    let directory = tempfile::tempdir()?;
    cli(out, cluster, host, &["apply", "-f", &write(directory.path(), "web.yaml", &manifest)?])?;
    cluster.wait_verified("default/web")?;
    out.seen(&format!("all {} nodes have read the Service back from their kernels", cluster.agents.len()))?;
    cli(out, cluster, host, &["get", "services,endpoints"])?;

    out.chapter("Real requests, and who answered")?;
    let all = ["web-1", "web-2", "web-3"];
    requests(out, cluster, &all)?;

    out.chapter("A backend dies")?;
    cluster.topology.stop_serving("web-2");
    out.seen("web-2 is killed; its record is deleted, as whoever runs the workloads would do")?;
    let deleted = Instant::now();
    cli(out, cluster, host, &["delete", "workload", "web-2"])?;
    cluster.wait_verified("default/web")?;
    out.seen(&format!(
        "every node has the change, read back, {} ms after the CLI was called",
        deleted.elapsed().as_millis()
    ))?;
    requests(out, cluster, &["web-1", "web-3"])?;

    let address = addresses::tell(out, cluster, host, directory.path())?;

    out.chapter("The control server dies")?;
    let to = at(cluster.cluster_ip("default/web", 0)?, 80);
    cluster.server.kill();
    requests_to(
        out,
        cluster,
        "client-inside",
        to,
        "through the ClusterIP, without control server",
        &["web-1", "web-3"],
    )?;
    addresses::curl(out, cluster, "client", "outside, without control server", address)?;
    cluster.start_control_again()?;
    cluster.wait_converged()?;
    out.seen("it is back, and every node has resumed")
}

/// Prints the URL of the web page, and commands with which a user can continue.
pub(crate) fn where_to_look(out: &mut Teller, cluster: &Cluster, host: &str) -> Result<()> {
    out.chapter("It stays up until Ctrl-C. Look around:")?;
    let tidegate = binaries::find("tidegate")?;
    let client = cluster.place("client")?.name().to_owned();
    let inside = cluster.place("client-inside")?.name().to_owned();
    let node = cluster.place("node1")?.name().to_owned();
    out.quote(&format!(
        "the page           http://{host}/\n\
         documentation      http://{host}/docs\n\
         API                curl http://{host}/v1/status\n\
         what a node gets   curl -N http://{host}/v1/nodes/node1/state\n\
         CLI                export TIDEGATE_API=http://{host}; {} get all\n\
         a client outside   ip netns exec {client} bash -c 'head -1 < /dev/tcp/{EXTERNAL}/80'\n\
         the same           ip netns exec {client} curl http://172.25.1.100/\n\
         a client inside    ip netns exec {inside} bash\n\
         a node's rules     ip netns exec {node} nft list table inet tidegate\n\
         an agent's state   ip netns exec {node} curl -s http://127.0.0.1:7441/v1/state",
        tidegate.display()
    ))
}

fn requests(out: &mut Teller, cluster: &Cluster, backends: &[&str]) -> Result<()> {
    let vip = cluster.cluster_ip("default/web", 0)?;
    let vip6 = cluster.cluster_ip("default/web", 1)?;
    requests_to(out, cluster, "client-inside", at(vip, 80), "through the ClusterIP", backends)?;
    requests_to(out, cluster, "client-inside", at(vip6, 80), "through the ClusterIP, IPv6", backends)?;
    let last = u8::try_from(cluster.topology.nodes.len()).context("a lab has few nodes")?;
    let [node, _] = topology::node_addresses(last);
    requests_to(out, cluster, "client", at(node, NODE_PORT), "through a node without endpoints", backends)?;
    requests_to(out, cluster, "client", at(EXTERNAL, 80), "through the external IP", backends)?;
    let reply = cluster.udp("client-inside", at(vip, 53))?;
    ensure!(backends.contains(&reply.backend.as_str()), "{} answered by UDP", reply.backend);
    out.seen(&format!(
        "{:<34} {:<46} {}",
        format!("UDP {}", at(vip, 53)),
        "through the ClusterIP",
        reply.backend
    ))
}

fn requests_to(
    out: &mut Teller,
    cluster: &Cluster,
    from: &str,
    to: SocketAddr,
    how: &str,
    backends: &[&str],
) -> Result<()> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    wait::until(&format!("all of {backends:?} to answer at {to}"), || {
        for (backend, count) in cluster.spread(from, to, REQUESTS)? {
            *counts.entry(backend).or_default() += count;
        }
        let answered: Vec<_> = counts.keys().map(String::as_str).collect();
        ensure!(answered == backends, "{answered:?} answered");
        Ok(())
    })?;
    let counts: Vec<_> = counts.iter().map(|(backend, count)| format!("{backend} ×{count}")).collect();
    out.seen(&format!("{:<34} {how:<46} {}", format!("{from} → {to}"), counts.join("  ")))
}

/// Writes `text` to the file `name` in a directory, as input for the CLI, and returns its path.
fn write(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_str().context("temporary paths are text")?.to_owned())
}

/// Runs the CLI against the control server at `host`, and prints the command line with its output.
fn cli(out: &mut Teller, cluster: &Cluster, host: &str, arguments: &[&str]) -> Result<()> {
    let program = binaries::find("tidegate")?;
    let shown: Vec<_> = arguments.iter().map(|word| shown_name(word)).collect();
    out.quote(&format!("$ tidegate {}", shown.join(" ")))?;
    let output = std::process::Command::new(program)
        .args(arguments)
        .env("TIDEGATE_API", format!("http://{host}"))
        .output()
        .context("cannot start the CLI")?;
    let directory_of = |word: &&str| word.strip_suffix(shown_name(word)).unwrap_or_default().to_owned();
    let directory = arguments.iter().map(directory_of).find(|directory| !directory.is_empty());
    let said = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        directory.as_ref().map_or_else(|| text.to_string(), |directory| text.replace(directory, ""))
    };
    out.quote(&said(&output.stdout))?;
    if output.status.success() {
        return out.quote(&said(&output.stderr));
    }
    bail!(
        "the CLI failed: {}; server log:\n{}",
        String::from_utf8_lossy(&output.stderr),
        cluster.server.log_tail()
    )
}

/// Shortens a command-line argument for display: the path of a temporary file becomes its file name.
fn shown_name(word: &str) -> &str {
    if word.starts_with('/') { word.rsplit('/').next().unwrap_or(word) } else { word }
}
