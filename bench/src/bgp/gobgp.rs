//! `GoBGP` of the Linux distribution as BGP implementation under test. The command `gobgp` starts and ends the
//! announcement of a prefix.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use lab::{
    host::{netns::Namespace, scratch::Scratch, wait},
    network::topology::{Topology, node_addresses},
    processes::process::{Plan, Process},
};
use serde_json::Value;

use super::{
    announcer::{ASN, Announcer, HOLD_TIME, address, resident_kib},
    mrt,
    routers::{ROUTER_ASN, Routers},
};

const NODE: &str = "node1";
/// Number of routes that the import file contains a second time at its end. The import command returns before
/// the last routes are processed; the repetition ensures that these are only repeated ones.
const REPEATED: usize = 1000;

/// GoBGP under measurement in one network namespace, with BGP peers that only it uses.
pub(super) struct Gobgp {
    routers: Routers,
    daemon: Process,
    topology: Topology,
    directory: Scratch,
}

impl Gobgp {
    /// Starts GoBGP and waits until its sessions are established.
    pub(super) fn start() -> Result<Self> {
        let topology = Topology::new(1)?;
        let own = node_addresses(1)[0];
        let routers = Routers::start(&topology, own)?;
        let directory = Scratch::new("bench")?;
        let configuration = directory.path().join("gobgpd.conf");
        fs::write(&configuration, text())?;
        let machine = topology.nodes.get(NODE).context("the topology has a node")?;
        let mut daemon = Process::start(Plan {
            label: "gobgpd".to_owned(),
            namespace: machine.namespace.clone(),
            program: PathBuf::from("gobgpd"),
            arguments: vec!["-f".to_owned(), configuration.display().to_string()],
            environment: Vec::new(),
            log: directory.path().join("gobgpd.log"),
        })?;
        let namespace = machine.namespace.clone();
        daemon.wait_ready(|| namespace.run("gobgp", &["neighbor"]))?;
        let mut gobgp = Self { routers, daemon, topology, directory };
        gobgp.wait_settled()?;
        Ok(gobgp)
    }

    fn namespace(&self) -> Result<&Namespace> {
        self.topology.place(NODE)
    }

    fn gobgp(&self, arguments: &[&str]) -> Result<String> {
        self.namespace()?.run("gobgp", arguments)
    }
}

impl Announcer for Gobgp {
    fn name(&self) -> &'static str {
        "gobgp"
    }

    fn settings(&self) -> String {
        format!(
            "GoBGP, one machine; an address is announced by `gobgp global rib add` on it; hold time {HOLD_TIME} s, no BFD (this version \
             has none)"
        )
    }

    fn routers(&self) -> &Routers {
        &self.routers
    }

    fn announce(&mut self, number: u32) -> Result<()> {
        self.gobgp(&["global", "rib", "add", &format!("{}/32", address(number))]).map(drop)
    }

    fn withdraw(&mut self, number: u32) -> Result<()> {
        self.gobgp(&["global", "rib", "del", &format!("{}/32", address(number))]).map(drop)
    }

    fn wait_settled(&mut self) -> Result<()> {
        self.routers.wait_established()
    }

    fn plug(&mut self, in_place: bool) -> Result<()> {
        self.topology.plug(NODE, in_place)
    }

    fn prepare(&mut self, count: u32) -> Result<()> {
        for router in Routers::addresses() {
            self.gobgp(&["neighbor", &router.to_string(), "disable"])?;
        }
        let file = self.directory.path().join("bulk.mrt");
        // The command exits before the last routes of the file are processed, so these are repeated.
        let last = std::iter::repeat_n(0, REPEATED);
        fs::write(&file, mrt::table((0..count).chain(last).map(address), ASN))?;
        self.gobgp(&["mrt", "inject", "global", &file.display().to_string()])?;
        wait::until("gobgpd to have all routes", || {
            let said = self.gobgp(&["-j", "global", "rib", "summary"])?;
            let summary: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
            let there = summary["num_destination"].as_u64().or_else(|| summary["NumDestination"].as_u64());
            ensure!(there == Some(count.into()), "{said}");
            Ok(())
        })
    }

    fn open(&mut self) -> Result<()> {
        for router in Routers::addresses() {
            self.gobgp(&["neighbor", &router.to_string(), "enable"])?;
        }
        Ok(())
    }

    fn memory_kib(&self) -> Result<u64> {
        resident_kib(self.daemon.pid().context("gobgpd is not running")?)
    }
}

fn text() -> String {
    let own = node_addresses(1)[0];
    let mut text = format!("[global.config]\n  as = {ASN}\n  router-id = \"{own}\"\n");
    for router in Routers::addresses() {
        text += &format!(
            "[[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{router}\"\n    peer-as = {ROUTER_ASN}\n  \
             [neighbors.timers.config]\n    connect-retry = 1\n    hold-time = {HOLD_TIME}\n    keepalive-interval = 1\n  \
             [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = \"ipv4-unicast\"\n"
        );
    }
    text
}
