//! Machines for fault injection: each is a network namespace with one program, connected to a switch.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    cluster::control::Http,
    host::{netns::Namespace, scratch::Scratch},
    network::topology::{fabric_addresses, plug_in, port_of},
    processes::process::{Plan, Process},
};

/// Name of the nftables table whose rules cut a machine off from others.
const TABLE: &str = "inet storm";

/// Creates a directory for the files of machines, in memory if possible, so that tests do not depend on the
/// speed of shared disks. The tests only kill processes, so written data are not lost.
///
/// # Errors
/// Returns an error if the directory cannot be created.
pub fn directory() -> Result<Scratch> {
    Scratch::in_memory("storm")
}

/// Switch that connects machines.
#[derive(Debug)]
pub struct Fabric {
    switch: Namespace,
}

/// Program that a machine runs, with its arguments.
#[derive(Debug)]
pub struct Program {
    /// Name of the machine in messages; short, because namespaces are named after it.
    pub label: String,
    /// Path of the binary.
    pub path: PathBuf,
    /// Command-line arguments of the program.
    pub arguments: Vec<String>,
    /// Address at which the program listens.
    pub address: SocketAddr,
    /// Environment variables in addition to the inherited ones.
    pub environment: Vec<(String, String)>,
}

/// Directions in which packets between machines are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DroppedDirection {
    /// Packets to and from the machine.
    Both,
    /// Packets to the machine; the other machines receive its packets.
    Inward,
    /// Packets from the machine; it receives the packets of the other machines.
    Outward,
}

/// Machine: a network namespace connected to a fabric (switch), with one program in it.
#[derive(Debug)]
pub struct ProgramMachine {
    /// Network namespace of the machine.
    pub namespace: Namespace,
    /// Process of the program.
    pub process: Process,
    /// Listening address of the program.
    pub address: SocketAddr,
    port: String,
}

impl Fabric {
    /// Creates a switch without machines.
    ///
    /// # Errors
    /// Returns an error if the process is not root or the kernel rejects the request.
    pub fn new() -> Result<Self> {
        let switch = Namespace::new("fabric")?;
        switch.ip(&["link add switch type bridge", "link set switch up"])?;
        Ok(Self { switch })
    }

    /// Returns the address on the fabric (switch) with the last octet `host`.
    #[must_use]
    pub fn address(host: u8) -> IpAddr {
        fabric_addresses(host)[0]
    }

    /// Creates a namespace that is connected to the fabric (switch) and runs no program. `host` is the last
    /// octet of its address.
    ///
    /// # Errors
    /// Returns an error if the address is in use.
    pub fn place(&self, role: &str, host: u8) -> Result<Namespace> {
        plug_in(&self.switch, role, host)
    }

    /// Creates a namespace that is connected to the fabric (switch) and starts a program in it. `host` is the
    /// last octet of its address. The log of the program is in `directory`.
    ///
    /// # Errors
    /// Returns an error if the address is in use or the program does not exist.
    pub fn start(&self, host: u8, program: Program, directory: &Path) -> Result<ProgramMachine> {
        let Program { label, path, arguments, address, environment } = program;
        let namespace = self.place(&label, host)?;
        let process = Process::start(Plan {
            log: directory.join(format!("{label}.log")),
            label,
            namespace: namespace.clone(),
            program: path,
            arguments,
            environment,
        })?;
        Ok(ProgramMachine { namespace, process, address, port: port_of(host) })
    }

    /// Disconnects a machine from the fabric (switch) by setting its link down, or reconnects it if
    /// `in_place` is true.
    ///
    /// # Errors
    /// Returns an error if `ip` fails.
    pub fn plug(&self, machine: &ProgramMachine, in_place: bool) -> Result<()> {
        let state = if in_place { "up" } else { "down" };
        self.switch.ip(&[format!("link set {} {state}", machine.port)])
    }
}

impl ProgramMachine {
    /// Drops the packets between this machine and the machines at the addresses `others`, in one or both directions.
    ///
    /// # Errors
    /// Returns an error if `nft` fails.
    pub fn cut_off(&self, others: &[IpAddr], direction: DroppedDirection) -> Result<()> {
        let others: Vec<_> = others.iter().map(ToString::to_string).collect();
        let others = others.join(", ");
        let chain = |name: &str, hook: &str, side: &str| {
            format!(
                "chain {name} {{\ntype filter hook {hook} priority 0;\nip {side} {{ {others} }} drop\n}}\n"
            )
        };
        let inward = || chain("inward", "input", "saddr");
        let outward = || chain("outward", "output", "daddr");
        let chains = match direction {
            DroppedDirection::Both => inward() + &outward(),
            DroppedDirection::Inward => inward(),
            DroppedDirection::Outward => outward(),
        };
        let rules = format!("table {TABLE} {{\n{chains}}}\n");
        self.namespace.run_with_input("nft", &["-f", "-"], &rules).map(drop)
    }

    /// Reverts [`Self::cut_off`].
    ///
    /// # Errors
    /// Returns an error if `nft` fails.
    pub fn join_again(&self) -> Result<()> {
        self.namespace.run_with_input("nft", &["-f", "-"], &format!("delete table {TABLE}")).map(drop)
    }

    /// Restarts the program if it has ended.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn ensure_running(&mut self) -> Result<()> {
        if self.process.exit_status().is_some() {
            self.process.kill();
            self.process.start_again().context("restarting a program that had ended")?;
        }
        Ok(())
    }

    /// Waits until the control server on this machine is ready. If the server ends meanwhile, starts it
    /// again, as a service manager would.
    ///
    /// # Errors
    /// Returns an error on timeout.
    pub fn wait_serving(&mut self) -> Result<()> {
        let http = Http::new(&self.namespace, self.address);
        crate::host::wait::until(&format!("the server at {} to serve", self.address), || {
            self.ensure_running()?;
            http.get("/readyz")?.success().map(drop)
        })
        .with_context(|| format!("its log ends:\n{}", self.process.log_tail()))
    }
}
