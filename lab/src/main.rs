//! Program behind `make lab` and `tidegate demo`: starts a cluster on this machine and runs a scripted demonstration, from the
//! first REST call to real packets.
//!
//! Every step is checked: requests are sent from sockets in network namespaces, pass the kernel rules of the
//! nodes, and are answered by servers in other namespaces.

mod demo;

use std::{io::Write, path::PathBuf, process::ExitCode, sync::mpsc};

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use lab::{
    chaos::upgrade,
    cluster::deployment::{Cluster, Options},
    fixtures::teams,
    host::{kernel, registry},
    network::{forward, topology},
    processes::requirements,
};
use man_pages::Section;

/// Preferred port of the control server on the host.
const HOST_PORT: u16 = 7440;

/// Runs a Tidegate cluster in network namespaces of this machine and demonstrates its features
///
/// The cluster has a control server, nodes with agents, backends and clients. The program needs root, `ip` and `nft`. It
/// changes no route, address or rule of this machine: everything is in network namespaces, which it removes at
/// the end.
#[derive(Debug, Parser)]
#[command(name = "tidegate-lab", version = base::build::text())]
struct Arguments {
    #[command(subcommand)]
    command: Option<LabCommand>,
    /// Exit after the demonstration, with status 0 only if all checks passed
    #[arg(long, env = "ONCE", num_args = 0..=1, default_missing_value = "1", default_value = "")]
    once: String,
    /// Number of nodes with an agent
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Write man pages and completions to a directory laid out like /usr/share; used to build packages
    #[command(hide = true)]
    Manual {
        /// Target directory
        #[arg(value_name = "DIR")]
        share: PathBuf,
    },
    /// Test an upgrade from the programs of another version, and clusters of both versions
    #[command(hide = true)]
    Upgrade {
        /// Directory with the older tidegate-api, tidegate-agent and tidegate
        #[arg(value_name = "DIR")]
        older: PathBuf,
    },
}

impl Arguments {
    fn ends_by_itself(&self) -> bool {
        !matches!(self.once.as_str(), "" | "0" | "false" | "no")
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(LabCommand::Manual { share }) = &arguments.command {
        return match man_pages::write(Arguments::command(), Section::Administration, share) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.into()),
        };
    }
    if let Err(error) = requirements::check() {
        return fail(&error);
    }
    let before = match kernel::host() {
        Ok(before) => before,
        Err(error) => return fail(&error),
    };
    let checked_before = before.clone();
    registry::set_last_word(Box::new(move || report_leftovers(&checked_before)));
    let shown = match &arguments.command {
        Some(LabCommand::Upgrade { older }) => upgrade::run(older, &mut std::io::stdout()),
        None | Some(LabCommand::Manual { .. }) => show(&arguments),
    };
    let left = report_leftovers(&before);
    match shown {
        Ok(()) if left == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => fail(&error),
    }
}

fn show(arguments: &Arguments) -> Result<()> {
    let mut out = demo::Teller::new();
    out.chapter("Bring up")?;
    let options = Options { nodes: arguments.nodes, lan: true, ..Options::default() };
    let mut cluster = Cluster::start(&options)?;
    let address = forward::to_namespace(HOST_PORT, &cluster.topology.control, topology::CONTROL)?;
    out.seen(&format!(
        "control server answers at http://{address} (API), http://{address}/docs (its documentation)"
    ))?;
    out.seen(&format!("{} nodes registered themselves and have converged", arguments.nodes))?;
    demo::tell(&mut out, &mut cluster, &address.to_string())?;
    if arguments.ends_by_itself() {
        return Ok(());
    }
    if cluster.topology.nodes.len() >= teams::NODES_MIN {
        out.chapter("A demo cluster for the web page")?;
        teams::add(&mut cluster)?;
        teams::fall_ill(&mut cluster)?;
        let (namespace, name, machine) = teams::ILL;
        out.seen(&format!("nine Services of four teams; a backend of {namespace}/{name} on node{machine} is killed, and health checks notice"))?;
    }
    demo::where_to_look(&mut out, &cluster, &address.to_string())?;
    wait_forever()
}

/// Waits for Ctrl-C. The signal handler of [`lab::host::registry`] then removes the cluster and ends the
/// process.
fn wait_forever() -> Result<()> {
    let (_never, nothing) = mpsc::channel::<()>();
    nothing.recv().context("nothing is ever sent")
}

/// Prints the objects that exist on this machine now and are not in `before`. Returns the exit status: 0 if
/// there are none, otherwise 1.
fn report_leftovers(before: &std::collections::BTreeSet<String>) -> i32 {
    let mut out = std::io::stdout().lock();
    let left: Vec<String> = match kernel::host() {
        Ok(after) => after.difference(before).cloned().collect(),
        Err(error) => vec![format!("cannot tell: {error:#}")],
    };
    if left.is_empty() {
        let _ = writeln!(
            out,
            "\nEverything is removed: namespaces, links and nftables tables of this host are as before."
        );
        return 0;
    }
    let _ = writeln!(out, "\nLeft behind:\n  {}", left.join("\n  "));
    1
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "\nThe lab failed: {error:#}");
    ExitCode::FAILURE
}
