//! keepalived as it comes with the distribution: VRRP moves the address, static rules of nftables forward the traffic.
//!
//! The rules do what a Service does: to the same backend, masqueraded. So both contestants' datagrams take the same way, and
//! what differs is who notices the failure, when, and how the client hears of it.

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

use super::contestant::{ADDRESS, BACKEND_PORT, Contestant, NODES, PORT};

/// Of the nodes in their order, as keepalived's manual recommends: all different, far apart.
const PRIORITIES: [u8; NODES as usize] = [200, 150, 100];

/// The ends of the names of parent's and child's process id files.
const PID_FILES: [&str; 2] = ["pid", "vrrp.pid"];

/// How often the owner says that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// VRRPv2, every second: what keepalived does unless told otherwise.
    Default,
    /// VRRPv3 (RFC 9568), every 50 ms: as often as Tidegate's tuned setting. Three lost ones and the skew are a failure.
    Fast,
}

/// keepalived on three nodes.
#[derive(Debug)]
pub struct Keepalived {
    pace: Pace,
    daemons: BTreeMap<String, Process>,
    /// Bytes of each log that earlier starts have written.
    log_before_start: BTreeMap<String, usize>,
    _backend: EchoServer,
    topology: Topology,
    directory: Scratch,
}

impl Keepalived {
    /// Starts it.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(pace: Pace) -> Result<Self> {
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

    /// The version that is installed.
    ///
    /// # Errors
    /// None is.
    pub fn version() -> Result<String> {
        // It writes its version to stderr.
        let text = shell::run("sh", &["-c", "keepalived --version 2>&1"])?;
        Ok(text.lines().next().unwrap_or("keepalived of unknown version").to_owned())
    }

    /// The state that a node's daemon has entered last since it was started.
    fn state(&self, node: &str, daemon: &Process) -> Option<String> {
        let log = daemon.log();
        last_state(log.get(self.log_before_start.get(node).copied().unwrap_or(0)..)?)
    }

    fn daemon(&mut self, node: &str) -> Result<&mut Process> {
        self.daemons.get_mut(node).with_context(|| format!("there is no {node}"))
    }
}

impl Contestant for Keepalived {
    fn name(&self) -> &'static str {
        match self.pace {
            Pace::Default => "keepalived-default",
            Pace::Fast => "keepalived-fast",
        }
    }

    fn settings(&self) -> String {
        let pace = match self.pace {
            Pace::Default => "VRRPv2, an advertisement every second (its default)",
            Pace::Fast => "VRRPv3, an advertisement every 50 ms",
        };
        format!("keepalived, {pace}, no preemption, priorities 200, 150 and 100")
    }

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn wait_settled(&mut self) -> Result<()> {
        wait::until("one keepalived to be master and all others to be backups", || {
            let state = |(node, daemon): (&String, &Process)| {
                let none = || format!("{node} has no state yet; its log ends:\n{}", daemon.log_tail());
                self.state(node, daemon).with_context(none)
            };
            let mut states = self.daemons.iter().map(state).collect::<Result<Vec<_>>>()?;
            states.sort();
            let expected = ["BACKUP", "BACKUP", "MASTER"];
            ensure!(states == expected, "{states:?} instead of {expected:?}");
            Ok(())
        })
    }

    fn kill_agent(&mut self, node: &str) -> Result<()> {
        let daemon = self.daemon(node)?;
        let pid = daemon.pid().with_context(|| format!("{node} has no keepalived"))?;
        // Parent and child at once: the child would say goodbye when it saw its parent die.
        killpg(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL).context("cannot kill keepalived")?;
        daemon.kill();
        Ok(())
    }

    fn start_agent(&mut self, node: &str) -> Result<()> {
        // Whoever is killed leaves them, and the killed child may wait for somebody to reap it: then its process id still looks
        // like that of a running daemon.
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

/// What a Service would do, as rules that never change.
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

fn configuration(node: &str, index: u8, pace: Pace) -> String {
    let (version, interval) = match pace {
        Pace::Default => (2, "1"),
        Pace::Fast => (3, "0.05"),
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

/// The state of the last `Entering … STATE` in a log.
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
