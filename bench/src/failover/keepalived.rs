//! keepalived of the Linux distribution as failover system under test: VRRP moves the address, and static
//! nftables rules forward the traffic.
//!
//! The rules forward like those of a Service: to the same backend, with masquerading. So datagrams take the same
//! path as with Tidegate, and only failure detection and takeover differ.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use lab::{
    host::{kernel, scratch::Scratch, shell, wait},
    network::{
        echo::EchoServer,
        topology::{CONTROL, Topology},
    },
    processes::process::{Plan, Process},
};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::contestant::{ADDRESS, BACKEND_PORT, FailoverContestant, NODES, PORT};

/// Priorities of the nodes in order, all different and far apart as recommended by keepalived's manual.
const PRIORITIES: [u8; NODES as usize] = [200, 150, 100];

/// File name suffixes of the PID files of keepalived's two processes: the parent, and its child for VRRP.
const PID_FILES: [&str; 2] = ["pid", "vrrp.pid"];

/// VRRP advertisement interval of the keepalived nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvertisementInterval {
    /// Interval of one second with VRRPv2, which is the default of keepalived.
    Default,
    /// Interval of 50 ms with VRRPv3 (RFC 9568), equal to [`super::tidegate::KeepaliveInterval::Tuned`].
    /// Three missed advertisements plus the skew time count as a failure.
    Fast,
}

/// keepalived running on three nodes.
#[derive(Debug)]
pub struct KeepalivedCluster {
    pace: AdvertisementInterval,
    daemons: BTreeMap<String, Process>,
    /// Size in bytes that the log of each node had when its daemon was last restarted; no entry before the
    /// first restart.
    log_before_start: BTreeMap<String, usize>,
    _backend: EchoServer,
    topology: Topology,
    directory: Scratch,
}

impl KeepalivedCluster {
    /// Starts keepalived on three nodes with an advertisement interval.
    ///
    /// # Errors
    /// Returns an error if keepalived is not installed or does not start.
    pub fn start(pace: AdvertisementInterval) -> Result<Self> {
        let directory = Scratch::new("bench")?;
        let topology = Topology::new(NODES)?;
        let backend = EchoServer::start(&topology.control, "backend", BACKEND_PORT)?;
        let mut daemons = BTreeMap::new();
        for (name, machine) in &topology.nodes {
            kernel::load(&machine.namespace, &rules())?;
            let file = |suffix: &str| directory.path().join(format!("{name}.{suffix}"));
            fs::write(file("conf"), configuration(name, machine.index, pace))?;
            let path = |option: &str, suffix: &str| format!("--{option}={}", file(suffix).display());
            let plan = Plan {
                label: format!("keepalived of {name}"),
                namespace: machine.namespace.clone(),
                program: PathBuf::from("keepalived"),
                arguments: vec![
                    "--dont-fork".into(),
                    "--log-console".into(),
                    "--log-detail".into(),
                    "--vrrp".into(),
                    path("use-file", "conf"),
                    path("pid", PID_FILES[0]),
                    path("vrrp_pid", PID_FILES[1]),
                ],
                environment: Vec::new(),
                log: file("log"),
            };
            daemons.insert(name.clone(), Process::start(plan)?);
        }
        Ok(Self { pace, daemons, log_before_start: BTreeMap::new(), _backend: backend, topology, directory })
    }

    /// Returns the installed version of keepalived.
    ///
    /// # Errors
    /// Returns an error if keepalived is not installed.
    pub fn version() -> Result<String> {
        // The version is printed to stderr.
        let text = shell::run("sh", &["-c", "keepalived --version 2>&1"])?;
        Ok(text.lines().next().unwrap_or("keepalived of unknown version").to_owned())
    }

    /// Returns the last VRRP state that the daemon of a node has entered since its start, or `None` if it has
    /// entered none.
    fn state(&self, node: &str, daemon: &Process) -> Option<String> {
        let log = daemon.log();
        last_state(log.get(self.log_before_start.get(node).copied().unwrap_or(0)..)?)
    }

    fn daemon(&mut self, node: &str) -> Result<&mut Process> {
        self.daemons.get_mut(node).with_context(|| format!("there is no node {node}"))
    }
}

impl FailoverContestant for KeepalivedCluster {
    fn name(&self) -> &'static str {
        match self.pace {
            AdvertisementInterval::Default => "keepalived-default",
            AdvertisementInterval::Fast => "keepalived-fast",
        }
    }

    fn settings(&self) -> String {
        let pace = match self.pace {
            AdvertisementInterval::Default => "VRRPv2, one advertisement per second (default)",
            AdvertisementInterval::Fast => "VRRPv3, one advertisement per 50 ms",
        };
        format!("keepalived, {pace}, no preemption, priorities 200, 150 and 100")
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn wait_settled(&mut self) -> Result<()> {
        wait::until("one keepalived to be master and all others backups", || {
            let state = |(node, daemon): (&String, &Process)| {
                let none = || format!("{node} has no state yet; its log ends:\n{}", daemon.log_tail());
                self.state(node, daemon).with_context(none)
            };
            let mut states = self.daemons.iter().map(state).collect::<Result<Vec<_>>>()?;
            states.sort();
            let expected = ["BACKUP", "BACKUP", "MASTER"];
            ensure!(states == expected, "{states:?}, expected {expected:?}");
            Ok(())
        })
    }

    fn kill_agent(&mut self, node: &str) -> Result<()> {
        let daemon = self.daemon(node)?;
        let pid = daemon.pid().with_context(|| format!("keepalived is not running on {node}"))?;
        // Parent and child together: the child would send a resignation when its parent dies.
        killpg(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL).context("cannot kill keepalived")?;
        daemon.kill();
        Ok(())
    }

    fn start_agent(&mut self, node: &str) -> Result<()> {
        // A killed daemon leaves its process id files. If the killed child is not reaped yet, its process id
        // still looks like that of a running daemon.
        for suffix in PID_FILES {
            let _never_written = fs::remove_file(self.directory.path().join(format!("{node}.{suffix}")));
        }
        let daemon = self.daemon(node)?;
        let log_bytes = daemon.log().len();
        daemon.start_again()?;
        self.log_before_start.insert(node.to_owned(), log_bytes);
        Ok(())
    }
}

/// Returns static nftables rules that forward like the rules of a Service.
fn rules() -> String {
    format!(
        "table inet forward {{
           chain to_backend {{
             type nat hook prerouting priority dstnat
             ip daddr {ADDRESS} udp dport {PORT} dnat ip to {}:{BACKEND_PORT}
           }}
           chain from_here {{
             type nat hook postrouting priority srcnat
             ct status dnat masquerade
           }}
         }}",
        CONTROL.ip()
    )
}

fn configuration(node: &str, index: u8, pace: AdvertisementInterval) -> String {
    let (version, interval) = match pace {
        AdvertisementInterval::Default => (2, "1"),
        AdvertisementInterval::Fast => (3, "0.05"),
    };
    let priority = PRIORITIES[usize::from(index - 1)];
    format!(
        "global_defs {{
           router_id {node}
           vrrp_version {version}
         }}
         vrrp_instance address {{
           state BACKUP
           nopreempt
           interface eth0
           virtual_router_id 51
           priority {priority}
           advert_int {interval}
           virtual_ipaddress {{
             {ADDRESS}/32
           }}
         }}"
    )
}

/// Returns the VRRP state in the last line `Entering … STATE` of a log, or `None` if there is no such line.
fn last_state(log: &str) -> Option<String> {
    let (_, entered) = log.rsplit_once(" Entering ")?;
    let (state, _) = entered.split_once(" STATE")?;
    Some(state.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_the_last_one_entered() {
        let log =
            "Sat: (address) Entering BACKUP STATE (init)\nSat: (address) Entering MASTER STATE\nSat: other\n";
        assert_eq!(last_state(log).as_deref(), Some("MASTER"));
        assert_eq!(last_state("Sat: (address) Entering BACKUP STATE (init)\n").as_deref(), Some("BACKUP"));
        assert_eq!(last_state("Starting"), None);
    }
}
