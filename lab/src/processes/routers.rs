//! Third-party BGP routers from the distribution: FRR and BIRD, each in a namespace of the fabric.
//!
//! The routers accept all announcements of the nodes and install them in their kernel, with ECMP over the nodes
//! that announce the same prefix. Tests read the learned routes from the routers' shells and from the kernel
//! routing table.

use std::{
    fs::{self, Permissions},
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use anyhow::{Context, Result};
use nix::unistd::{Group, User, chown};
use serde_json::Value;

use crate::{
    host::{netns::Namespace, scratch::Scratch},
    processes::process::{Plan, Process},
};

/// Directory of the FRR daemons on Debian.
const FRR: &str = "/usr/lib/frr";

/// BGP configuration of a router.
#[derive(Debug, Clone)]
pub struct RouterPlan {
    /// AS number of the router.
    pub asn: u32,
    /// BGP Identifier of the router (RFC 4271 §4.2).
    pub router_id: Ipv4Addr,
    /// Neighbor addresses and their AS numbers.
    pub neighbours: Vec<(IpAddr, u32)>,
    /// BFD settings for all neighbors: transmit interval in milliseconds and detection multiplier; `None` disables
    /// BFD.
    pub bfd: Option<(u32, u8)>,
    /// Proposed hold time in seconds.
    pub hold_time: u16,
    /// True if the router is a route reflector (RFC 4456) whose neighbors are clients.
    pub reflects: bool,
    /// IPv4 prefixes that FRR originates.
    pub networks: Vec<String>,
}

impl RouterPlan {
    /// Creates the configuration of a router without BFD and with a hold time of 90 seconds.
    #[must_use]
    pub const fn new(asn: u32, router_id: Ipv4Addr, neighbours: Vec<(IpAddr, u32)>) -> Self {
        Self { asn, router_id, neighbours, bfd: None, hold_time: 90, reflects: false, networks: Vec::new() }
    }
}

/// FRR in a namespace, with the daemons zebra, bgpd and, if configured, bfdd.
#[derive(Debug)]
pub struct Frr {
    /// Network namespace of the router.
    pub namespace: Namespace,
    daemons: Vec<Process>,
    directory: Scratch,
}

impl Frr {
    /// Starts FRR and waits until its shell responds.
    ///
    /// # Errors
    /// Returns an error if FRR is not installed or does not start.
    pub fn start(namespace: &Namespace, plan: &RouterPlan) -> Result<Self> {
        let directory = directory()?;
        let user = User::from_name("frr")?.context("FRR is not installed: `make setup` installs it")?;
        let group = Group::from_name("frr")?.context("the group `frr` does not exist")?;
        chown(directory.path(), Some(user.uid), Some(group.gid))?;
        let mut frr = Self { namespace: namespace.clone(), daemons: Vec::new(), directory };
        fs::write(frr.file("vtysh.conf"), "")?;
        frr.start_daemon("zebra", "", &[])?;
        if let Some((interval, multiplier)) = plan.bfd {
            let control = frr.file("bfdd.sock").display().to_string();
            frr.start_daemon("bfdd", &frr_bfd(interval, multiplier), &["--bfdctl", &control])?;
        }
        frr.start_daemon("bgpd", &frr_bgp(plan), &[])?;
        Ok(frr)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start_daemon(&mut self, daemon: &str, configuration: &str, more: &[&str]) -> Result<()> {
        let path = |name: String| self.file(&name).display().to_string();
        fs::write(self.file(&format!("{daemon}.conf")), configuration)?;
        let arguments = [
            "-f",
            &path(format!("{daemon}.conf")),
            "-i",
            &path(format!("{daemon}.pid")),
            "-z",
            &path("zserv.api".to_owned()),
            "--vty_socket",
            &self.directory.path().display().to_string(),
            "--log",
            "stdout",
        ];
        let mut process = Process::start(Plan {
            label: format!("FRR's {daemon}"),
            namespace: self.namespace.clone(),
            program: PathBuf::from(FRR).join(daemon),
            arguments: arguments.iter().chain(more).map(|&word| word.to_owned()).collect(),
            environment: Vec::new(),
            log: self.file(&format!("{daemon}.log")),
        })?;
        let terminal = self.file(&format!("{daemon}.vty"));
        process
            .wait_ready(|| terminal.try_exists()?.then_some(()).context("the vty socket does not exist"))?;
        self.daemons.push(process);
        Ok(())
    }

    /// Runs a command in `vtysh`.
    ///
    /// # Errors
    /// Returns an error if the command is rejected.
    pub fn vtysh(&self, command: &str) -> Result<String> {
        let directory = self.directory.path().display().to_string();
        self.namespace.run("vtysh", &["--vty_socket", &directory, "-c", command])
    }

    /// Runs a `show` command with JSON output in the shell of FRR and returns the output. The argument
    /// excludes the words `show` and `json`.
    ///
    /// # Errors
    /// Returns an error if the command is rejected or the output is not JSON.
    pub fn show(&self, what: &str) -> Result<Value> {
        let text = self.vtysh(&format!("show {what} json"))?;
        serde_json::from_str(&text).with_context(|| format!("`show {what} json` returned {text}"))
    }

    /// Returns true if the session with a neighbor is established.
    ///
    /// # Errors
    /// Returns an error if the shell does not respond.
    pub fn is_established(&self, neighbour: IpAddr) -> Result<bool> {
        let said = self.show(&format!("bgp neighbors {neighbour}"))?;
        Ok(said[neighbour.to_string()]["bgpState"] == "Established")
    }
}

/// BIRD 2 in a namespace.
#[derive(Debug)]
pub struct Bird {
    /// Network namespace of the router.
    pub namespace: Namespace,
    _daemon: Process,
    directory: Scratch,
}

impl Bird {
    /// Starts BIRD and waits until its shell responds.
    ///
    /// # Errors
    /// Returns an error if BIRD is not installed or does not start.
    pub fn start(namespace: &Namespace, plan: &RouterPlan) -> Result<Self> {
        let directory = directory()?;
        let path = |name: &str| directory.path().join(name);
        fs::write(path("bird.conf"), bird_configuration(plan))?;
        let words = [("-c", "bird.conf"), ("-s", "bird.ctl"), ("-P", "bird.pid")];
        let words = words.map(|(option, name)| [option.to_owned(), path(name).display().to_string()]);
        let mut daemon = Process::start(Plan {
            label: "BIRD".to_owned(),
            namespace: namespace.clone(),
            program: PathBuf::from("bird"),
            arguments: std::iter::once("-f".to_owned()).chain(words.into_iter().flatten()).collect(),
            environment: Vec::new(),
            log: path("bird.log"),
        })?;
        let control = path("bird.ctl");
        daemon.wait_ready(|| {
            control.try_exists()?.then_some(()).context("the control socket does not exist")
        })?;
        Ok(Self { namespace: namespace.clone(), _daemon: daemon, directory })
    }

    /// Runs a command in `birdc`.
    ///
    /// # Errors
    /// Returns an error if the command is rejected.
    pub fn birdc(&self, command: &str) -> Result<String> {
        let control = self.directory.path().join("bird.ctl").display().to_string();
        let words: Vec<_> = command.split_whitespace().collect();
        self.namespace.run("birdc", &[&["-s", control.as_str()], words.as_slice()].concat())
    }

    /// Returns true if the session with a neighbor is established; `index` is the neighbor's index in
    /// [`RouterPlan::neighbours`].
    ///
    /// # Errors
    /// Returns an error if the shell does not respond.
    pub fn is_established(&self, index: usize) -> Result<bool> {
        Ok(self.birdc(&format!("show protocols peer{index}"))?.contains("Established"))
    }
}

/// Returns the routes in the kernel of a namespace that a BGP router has installed, as printed by `ip -json
/// route`.
///
/// # Errors
/// Returns an error if `ip` fails.
pub fn learned(namespace: &Namespace) -> Result<Vec<Value>> {
    let mut routes = Vec::new();
    for family in ["-4", "-6"] {
        let text = namespace.run("ip", &["-json", family, "route", "show"])?;
        let all: Vec<Value> = serde_json::from_str(text.trim()).with_context(|| text.clone())?;
        routes.extend(
            all.into_iter().filter(|route| route["protocol"] == "bgp" || route["protocol"] == "bird"),
        );
    }
    Ok(routes)
}

fn directory() -> Result<Scratch> {
    let directory = Scratch::new("router")?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    Ok(directory)
}

fn frr_bfd(interval: u32, multiplier: u8) -> String {
    format!(
        "bfd\n profile paths\n  receive-interval {interval}\n  transmit-interval {interval}\n  detect-multiplier {multiplier}\n exit\nexit\n"
    )
}

fn frr_bgp(plan: &RouterPlan) -> String {
    let RouterPlan { asn, router_id, neighbours, bfd, hold_time, reflects, networks } = plan;
    let mut text = format!(
        "router bgp {asn}\n bgp router-id {router_id}\n no bgp ebgp-requires-policy\n no bgp network import-check\n bgp bestpath as-path multipath-relax\n \
         timers bgp {} {hold_time}\n",
        (hold_time / 3).max(1)
    );
    for (address, remote) in neighbours {
        text += &format!(" neighbor {address} remote-as {remote}\n neighbor {address} timers connect 1\n");
        if bfd.is_some() {
            text += &format!(" neighbor {address} bfd profile paths\n");
        }
    }
    for family in ["ipv4", "ipv6"] {
        text += &format!(" address-family {family} unicast\n");
        for (address, _) in neighbours {
            text += &format!("  neighbor {address} activate\n");
            if *reflects {
                text += &format!("  neighbor {address} route-reflector-client\n");
            }
        }
        for network in networks.iter().filter(|_| family == "ipv4") {
            text += &format!("  network {network}\n");
        }
        text += "  maximum-paths 16\n exit-address-family\n";
    }
    text + "exit\n"
}

fn bird_configuration(plan: &RouterPlan) -> String {
    let RouterPlan { asn, router_id, neighbours, bfd, hold_time, reflects, networks: _ } = plan;
    let mut text = format!("router id {router_id};\nprotocol device {{}}\n");
    for family in ["ipv4", "ipv6"] {
        text += &format!("protocol kernel {{ {family} {{ export all; import none; }}; merge paths on; }}\n");
    }
    if let Some((interval, multiplier)) = bfd {
        text += &format!(
            "protocol bfd {{ interface \"*\" {{ interval {interval} ms; multiplier {multiplier}; }}; }}\n"
        );
    }
    for (index, (address, remote)) in neighbours.iter().enumerate() {
        let watched = if bfd.is_some() { " bfd on;" } else { "" };
        // Next hops of internal routes are on the link as well.
        let direct = if remote == asn { " direct;" } else { "" };
        let (client, export) = if *reflects { (" rr client;", "all") } else { ("", "none") };
        text += &format!(
            "protocol bgp peer{index} {{ local as {asn}; neighbor {address} as {remote}; hold time {hold_time};{watched}{direct}{client}\n \
             connect delay time 1; connect retry time 1; error wait time 1, 5;\n \
             ipv4 {{ import all; export {export}; }}; ipv6 {{ import all; export {export}; }}; }}\n"
        );
    }
    text
}
