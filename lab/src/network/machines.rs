//! Machines of a storm: a namespace on a fabric with one program in it, which can be struck and mended.

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

/// The table of nftables with which a machine is cut off from others.
const TABLE: &str = "inet storm";

/// A directory for the files of machines, in memory where there is such a place: what is tested is the death of processes,
/// which takes nothing that was written, and not the patience of disks that others use as well.
///
/// # Errors
/// It cannot be made.
pub fn directory() -> Result<Scratch> {
    Scratch::in_memory("storm")
}

/// A switch with machines on it.
#[derive(Debug)]
pub struct Fabric {
    switch: Namespace,
}

/// What runs on a machine.
#[derive(Debug)]
pub struct Program {
    /// What messages call it; short, because namespaces are named after it.
    pub label: String,
    /// The binary.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A machine with its program.
#[derive(Debug)]
pub struct Machine {
    /// Its network.
    pub namespace: Namespace,
    /// Its program.
    pub process: Process,
    /// Where the program listens.
    pub address: SocketAddr,
    port: String,
}

impl Fabric {
    /// A switch without machines.
    ///
    /// # Errors
    /// Not root, or the kernel refuses.
    pub fn new() -> Result<Self> {
        let switch = Namespace::new("fabric")?;
        switch.ip(&["link add switch type bridge", "link set switch up"])?;
        Ok(Self { switch })
    }

    /// The address of a machine on the fabric.
    #[must_use]
    pub fn address(host: u8) -> IpAddr {
        fabric_addresses(host)[0]
    }

    /// A place without a program.
    ///
    /// # Errors
    /// The address is taken.
    pub fn place(&self, role: &str, host: u8) -> Result<Namespace> {
        plug_in(&self.switch, role, host)
    }

    /// A machine that runs a program; its log is in `directory`.
    ///
    /// # Errors
    /// The address is taken, or the program is not there.
    pub fn start(&self, host: u8, program: Program, directory: &Path) -> Result<Machine> {
        let Program { label, path, arguments, address } = program;
        let namespace = self.place(&label, host)?;
        let process = Process::start(Plan {
            log: directory.join(format!("{label}.log")),
            label,
            namespace: namespace.clone(),
            program: path,
            arguments,
            environment: Vec::new(),
        })?;
        Ok(Machine { namespace, process, address, port: port_of(host) })
    }

    /// Takes a machine off the fabric, as a pulled cable would, or puts it back.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn plug(&self, machine: &Machine, in_place: bool) -> Result<()> {
        let state = if in_place { "up" } else { "down" };
        self.switch.ip(&[format!("link set {} {state}", machine.port)])
    }
}

impl Machine {
    /// Drops everything between this machine and others.
    ///
    /// # Errors
    /// `nft` fails.
    pub fn cut_off(&self, others: &[IpAddr]) -> Result<()> {
        let others: Vec<_> = others.iter().map(ToString::to_string).collect();
        let others = others.join(", ");
        let chain = |name: &str, hook: &str, side: &str| {
            format!(
                "chain {name} {{\ntype filter hook {hook} priority 0;\nip {side} {{ {others} }} drop\n}}\n"
            )
        };
        let (inward, outward) = (chain("inward", "input", "saddr"), chain("outward", "output", "daddr"));
        let rules = format!("table {TABLE} {{\n{inward}{outward}}}\n");
        self.namespace.run_with_input("nft", &["-f", "-"], &rules).map(drop)
    }

    /// Undoes [`Self::cut_off`].
    ///
    /// # Errors
    /// `nft` fails.
    pub fn join_again(&self) -> Result<()> {
        self.namespace.run_with_input("nft", &["-f", "-"], &format!("delete table {TABLE}")).map(drop)
    }

    /// Starts the program again if it has ended.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn ensure_running(&mut self) -> Result<()> {
        if self.process.exit_status().is_some() {
            self.process.kill();
            self.process.start_again().context("a program that had ended")?;
        }
        Ok(())
    }

    /// Waits until a control server is ready to serve; starts it again when it ends meanwhile, as its supervisor would.
    ///
    /// # Errors
    /// It never is.
    pub fn wait_serving(&mut self) -> Result<()> {
        let http = Http::new(&self.namespace, self.address);
        crate::host::wait::until(&format!("the server at {} to serve", self.address), || {
            self.ensure_running()?;
            http.get("/readyz")?.success().map(drop)
        })
        .with_context(|| format!("its log ends:\n{}", self.process.log_tail()))
    }
}
