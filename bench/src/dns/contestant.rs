//! Servers of the DNS benchmark: their processes, configurations and versions.

use std::{fmt, fs, net::IpAddr, path::Path};

use anyhow::{Context, Result};
use lab::{
    cluster::deployment::Cluster,
    host::{netns::Namespace, shell},
    processes::{
        binaries,
        process::{Plan, Process},
    },
};
use serde::{Deserialize, Serialize};

use super::data::{NameKind, NameSet, OTHER_ZONE};

/// Name server that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameServer {
    /// `tidegate-dns`.
    Tidegate,
    /// Knot DNS, which only answers its own zones.
    Knot,
    /// Unbound.
    Unbound,
    /// dnsmasq.
    Dnsmasq,
}

impl NameServer {
    const ALL: [Self; 4] = [Self::Tidegate, Self::Knot, Self::Unbound, Self::Dnsmasq];

    /// Name of the server in the results.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Knot => "knot",
            Self::Unbound => "unbound",
            Self::Dnsmasq => "dnsmasq",
        }
    }

    /// Description of the measured configuration, for the page.
    pub(super) const fn settings(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate-dns, fed by a control server; forwards to Knot DNS",
            Self::Knot => "Knot DNS, zone files, one UDP worker per CPU",
            Self::Unbound => {
                "Unbound, the cluster zone from a zone file, one thread per CPU; forwards to Knot DNS"
            }
            Self::Dnsmasq => "dnsmasq, the cluster zone from a hosts file; forwards to Knot DNS",
        }
    }

    /// UDP port of the server on the loopback interface.
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::Tidegate => 5300,
            Self::Knot => 5310,
            Self::Unbound => 5320,
            Self::Dnsmasq => 5330,
        }
    }

    /// True if the server caches the answers of other servers.
    const fn forwards(self) -> bool {
        !matches!(self, Self::Knot)
    }
}

/// Server and kind of names that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contest {
    pub(super) server: NameServer,
    pub(super) kind: NameKind,
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}, {}", self.server.as_str(), self.kind.as_str()))
    }
}

/// Returns all contests, kind by kind.
pub(super) fn contests() -> Vec<Contest> {
    let of = |kind: NameKind| {
        let able =
            NameServer::ALL.into_iter().filter(move |server| kind != NameKind::Cached || server.forwards());
        able.map(move |server| Contest { server, kind })
    };
    NameKind::ALL.into_iter().flat_map(of).collect()
}

/// Running servers, which end when dropped.
#[derive(Debug)]
pub(super) struct Servers {
    tidegate: Process,
    knot: Process,
    unbound: Process,
    dnsmasq: Process,
}

impl Servers {
    /// Starts all servers and waits until each one answers.
    pub(super) fn start(
        place: &Namespace,
        cluster: &Cluster,
        names: &NameSet,
        directory: &Path,
    ) -> Result<Self> {
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("cluster.zone", names.cluster_zone())?;
        write("other.zone", names.other_zone())?;
        write("hosts", names.hosts())?;
        write("knot.conf", knot(directory)?)?;
        write("unbound.conf", unbound(directory)?)?;
        let start = |server: NameServer, program: &str, arguments: Vec<String>| {
            Process::start(Plan {
                label: server.as_str().to_owned(),
                namespace: place.clone(),
                program: if server == NameServer::Tidegate {
                    binaries::find(program)?
                } else {
                    program.into()
                },
                arguments,
                environment: Vec::new(),
                log: directory.join(server.as_str()).with_extension("log"),
            })
        };
        let file = |name: &str| directory.join(name).display().to_string();
        let mut servers = Self {
            knot: start(NameServer::Knot, KNOT, vec!["-c".to_owned(), file("knot.conf")])?,
            tidegate: start(NameServer::Tidegate, "tidegate-dns", tidegate(cluster, directory))?,
            unbound: start(
                NameServer::Unbound,
                UNBOUND,
                ["-d", "-c"].map(str::to_owned).into_iter().chain([file("unbound.conf")]).collect(),
            )?,
            dnsmasq: start(NameServer::Dnsmasq, DNSMASQ, dnsmasq(&file("hosts")))?,
        };
        let last = names.names(NameKind::Service).pop().context("there is a Service")?;
        let other = names.names(NameKind::Cached).pop();
        // Knot DNS first: it loads its zones one after another, and the others forward to it.
        for server in [NameServer::Knot, NameServer::Tidegate, NameServer::Unbound, NameServer::Dnsmasq] {
            let port = server.port().to_string();
            let mut ask = vec!["@127.0.0.1", "-p", &port, "+tries=1", "+time=1", "+short", &last, "A"];
            ask.extend(other.iter().flat_map(|name| [name.as_str(), "A"]));
            servers.process_mut(server).wait_ready(|| {
                let answers = place.run("dig", &ask)?;
                let count = answers.lines().filter(|line| line.parse::<IpAddr>().is_ok()).count();
                anyhow::ensure!(count == 1 + usize::from(other.is_some()), "answers: {answers}");
                Ok(())
            })?;
        }
        Ok(servers)
    }

    /// Returns the process of `tidegate-dns`.
    pub(super) const fn tidegate(&self) -> &Process {
        &self.tidegate
    }

    /// Returns the process of a server.
    pub(super) const fn process(&self, server: NameServer) -> &Process {
        match server {
            NameServer::Tidegate => &self.tidegate,
            NameServer::Knot => &self.knot,
            NameServer::Unbound => &self.unbound,
            NameServer::Dnsmasq => &self.dnsmasq,
        }
    }

    const fn process_mut(&mut self, server: NameServer) -> &mut Process {
        match server {
            NameServer::Tidegate => &mut self.tidegate,
            NameServer::Knot => &mut self.knot,
            NameServer::Unbound => &mut self.unbound,
            NameServer::Dnsmasq => &mut self.dnsmasq,
        }
    }
}

const KNOT: &str = "/usr/sbin/knotd";
const UNBOUND: &str = "/usr/sbin/unbound";
const DNSMASQ: &str = "/usr/sbin/dnsmasq";

/// Returns the versions of the tested software.
pub(super) fn versions() -> Result<Vec<String>> {
    let first = |command: &str| -> Result<String> {
        let text = shell::run("sh", &["-c", command]).with_context(|| format!("`{command}` failed"))?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let dnsmasq = first("/usr/sbin/dnsmasq --version")?;
    Ok(vec![
        format!("tidegate {}", env!("CARGO_PKG_VERSION")),
        first("/usr/sbin/knotd --version")?,
        format!("Unbound {}", first("/usr/sbin/unbound -V")?.trim_start_matches("Version ")),
        dnsmasq.split("  ").next().unwrap_or_default().to_owned(),
        // The version is printed with the usage, to stderr.
        first("dnsperf -h 2>&1 | grep -i '^version' | sed 's/^Version/dnsperf/'")
            .unwrap_or_else(|_| "dnsperf".to_owned()),
    ])
}

fn tidegate(cluster: &Cluster, directory: &Path) -> Vec<String> {
    vec![
        format!("--api={}", cluster.api.url()),
        format!("--listen=127.0.0.1:{}", NameServer::Tidegate.port()),
        "--status-listen=127.0.0.1:7443".to_owned(),
        format!("--state-dir={}", directory.join("state").display()),
        format!("--upstream=127.0.0.1:{}", NameServer::Knot.port()),
        "--reverse=10.96.0.0/16".to_owned(),
    ]
}

fn processors() -> Result<usize> {
    Ok(std::thread::available_parallelism().context("cannot determine the number of CPUs")?.get())
}

fn knot(directory: &Path) -> Result<String> {
    let (path, workers, port) = (directory.display(), processors()?, NameServer::Knot.port());
    Ok(format!(
        "server:\n  listen: 127.0.0.1@{port}\n  rundir: {path}\n  udp-workers: {workers}\n  tcp-workers: 1\n  \
         background-workers: 1\nlog:\n  - target: stderr\n    any: warning\ndatabase:\n  storage: {path}\n\
         template:\n  - id: default\n    storage: {path}\n    zonefile-load: whole\n    journal-content: none\n\
         zone:\n  - domain: cluster.local\n    file: cluster.zone\n  - domain: {OTHER_ZONE}\n    file: other.zone\n"
    ))
}

fn unbound(directory: &Path) -> Result<String> {
    let (path, threads) = (directory.display(), processors()?);
    let (port, upstream) = (NameServer::Unbound.port(), NameServer::Knot.port());
    Ok(format!(
        "server:\n  directory: \"{path}\"\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n  use-syslog: no\n  \
         logfile: \"\"\n  interface: 127.0.0.1@{port}\n  num-threads: {threads}\n  so-reuseport: yes\n  \
         do-not-query-localhost: no\n  module-config: \"iterator\"\nremote-control:\n  control-enable: no\n\
         auth-zone:\n  name: \"cluster.local\"\n  zonefile: \"{path}/cluster.zone\"\n  for-downstream: yes\n  \
         for-upstream: no\nforward-zone:\n  name: \"{OTHER_ZONE}\"\n  forward-addr: 127.0.0.1@{upstream}\n"
    ))
}

fn dnsmasq(hosts: &str) -> Vec<String> {
    let (port, upstream) = (NameServer::Dnsmasq.port(), NameServer::Knot.port());
    let mut arguments: Vec<String> = [
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--user=root",
        "--local=/cluster.local/",
        "--cache-size=10000",
        "--dns-forward-max=1000",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--port={port}"));
    arguments.push(format!("--addn-hosts={hosts}"));
    arguments.push(format!("--server=127.0.0.1#{upstream}"));
    arguments
}
