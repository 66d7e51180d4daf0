//! Routers of others with BGP: FRR and BIRD as they come with the distribution, each on a place of the fabric.
//!
//! They take whatever the machines announce to them and put it into their kernel, spread over all machines that announce the
//! same (ECMP). What they have learned is asked of themselves: of their shells, and of their kernel's routing table.

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

/// Where Debian puts FRR's daemons.
const FRR: &str = "/usr/lib/frr";

/// What a router is to speak.
#[derive(Debug, Clone)]
pub struct RouterPlan {
    /// Its AS.
    pub asn: u32,
    /// Its BGP Identifier.
    pub router_id: Ipv4Addr,
    /// Whom it speaks with, and their AS.
    pub neighbours: Vec<(IpAddr, u32)>,
    /// BFD with all of them: milliseconds between packets, and how many missing ones are a failure.
    pub bfd: Option<(u32, u8)>,
    /// The hold time that it proposes, in seconds.
    pub hold_time: u16,
}

impl RouterPlan {
    /// A router without BFD that waits 90 seconds for a silent neighbour.
    #[must_use]
    pub const fn new(asn: u32, router_id: Ipv4Addr, neighbours: Vec<(IpAddr, u32)>) -> Self {
        Self { asn, router_id, neighbours, bfd: None, hold_time: 90 }
    }
}

/// FRR: zebra, bgpd and, where wanted, bfdd.
#[derive(Debug)]
pub struct Frr {
    /// Where it runs.
    pub namespace: Namespace,
    daemons: Vec<Process>,
    directory: Scratch,
}

impl Frr {
    /// Starts it and waits until its shell answers.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(namespace: &Namespace, plan: &RouterPlan) -> Result<Self> {
        let directory = directory()?;
        let user = User::from_name("frr")?.context("FRR is not installed: `make setup` installs it")?;
        let group = Group::from_name("frr")?.context("FRR's group is not there")?;
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
        process.wait_ready(|| terminal.try_exists()?.then_some(()).context("its terminal is not there"))?;
        self.daemons.push(process);
        Ok(())
    }

    /// Runs a command of FRR's shell.
    ///
    /// # Errors
    /// The shell refuses it.
    pub fn vtysh(&self, command: &str) -> Result<String> {
        let directory = self.directory.path().display().to_string();
        self.namespace.run("vtysh", &["--vty_socket", &directory, "-c", command])
    }

    /// What `show … json` says.
    ///
    /// # Errors
    /// The shell refuses it, or says something else.
    pub fn show(&self, what: &str) -> Result<Value> {
        let text = self.vtysh(&format!("show {what} json"))?;
        serde_json::from_str(&text).with_context(|| format!("`show {what} json` said {text}"))
    }

    /// Whether the session with a neighbour is established.
    ///
    /// # Errors
    /// The shell does not answer.
    pub fn is_established(&self, neighbour: IpAddr) -> Result<bool> {
        let said = self.show(&format!("bgp neighbors {neighbour}"))?;
        Ok(said[neighbour.to_string()]["bgpState"] == "Established")
    }
}

/// BIRD 2.
#[derive(Debug)]
pub struct Bird {
    /// Where it runs.
    pub namespace: Namespace,
    _daemon: Process,
    directory: Scratch,
}

impl Bird {
    /// Starts it and waits until its shell answers.
    ///
    /// # Errors
    /// It is not installed or does not start.
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
        daemon.wait_ready(|| control.try_exists()?.then_some(()).context("its socket is not there"))?;
        Ok(Self { namespace: namespace.clone(), _daemon: daemon, directory })
    }

    /// Runs a command of BIRD's shell.
    ///
    /// # Errors
    /// The shell refuses it.
    pub fn birdc(&self, command: &str) -> Result<String> {
        let control = self.directory.path().join("bird.ctl").display().to_string();
        let words: Vec<_> = command.split_whitespace().collect();
        self.namespace.run("birdc", &[&["-s", control.as_str()], words.as_slice()].concat())
    }

    /// Whether the session with a neighbour is established; `index` is its place in the plan.
    ///
    /// # Errors
    /// The shell does not answer.
    pub fn is_established(&self, index: usize) -> Result<bool> {
        Ok(self.birdc(&format!("show protocols peer{index}"))?.contains("Established"))
    }
}

/// The prefixes that the kernel of a namespace has from BGP, in text form.
///
/// # Errors
/// `ip` fails.
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
    let RouterPlan { asn, router_id, neighbours, bfd, hold_time } = plan;
    let mut text = format!(
        "router bgp {asn}\n bgp router-id {router_id}\n no bgp ebgp-requires-policy\n bgp bestpath as-path multipath-relax\n \
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
        }
        text += "  maximum-paths 16\n exit-address-family\n";
    }
    text + "exit\n"
}

fn bird_configuration(plan: &RouterPlan) -> String {
    let RouterPlan { asn, router_id, neighbours, bfd, hold_time } = plan;
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
        text += &format!(
            "protocol bgp peer{index} {{ local as {asn}; neighbor {address} as {remote}; hold time {hold_time};{watched}\n \
             connect delay time 1; connect retry time 1; error wait time 1, 5;\n \
             ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n"
        );
    }
    text
}
