//! FRR as a router of the interoperability tests: zebra with `bfdd` and `bgpd`.

use std::{collections::BTreeMap, path::Path};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    Kept, Peer, Peering, Route, Router, Session, Settings, community,
    daemon::{Daemon, Place, run},
    lines,
};

/// FRR in a namespace. Routes learned by `bgpd` are installed in the kernel by zebra.
pub struct Frr {
    daemons: Vec<Daemon>,
    namespace: String,
    place: Place,
}

impl Frr {
    /// Starts zebra and `bfdd` with a configuration.
    pub fn bfdd(namespace: &str, configuration: &str) -> Self {
        let mut frr = Self::zebra(namespace);
        frr.start("bfdd", configuration);
        frr
    }

    /// Starts zebra, `bfdd` if a session uses it, and `bgpd`.
    pub fn bgpd(namespace: &str, settings: &Settings) -> Self {
        let mut frr = Self::zebra(namespace);
        if settings.peerings.iter().any(|peering| peering.bfd.is_some()) {
            frr.start("bfdd", "");
        }
        frr.start("bgpd", &configuration(settings));
        frr
    }

    fn zebra(namespace: &str) -> Self {
        let place = Place::new(namespace, "frr");
        place.write("vtysh.conf", "");
        let frr = Self { daemons: Vec::new(), namespace: namespace.to_owned(), place };
        run(namespace, &["chown", "frr:frr", frr.place.path().to_str().unwrap()]);
        frr.with("zebra", "")
    }

    fn with(mut self, daemon: &str, configuration: &str) -> Self {
        self.start(daemon, configuration);
        self
    }

    fn start(&mut self, daemon: &str, configuration: &str) {
        let program = format!("/usr/lib/frr/{daemon}");
        let configuration = self.place.write(&format!("{daemon}.conf"), configuration);
        let (pid, zebra) = (self.place.file(&format!("{daemon}.pid")), self.place.file("zserv.api"));
        let directory = self.place.path().to_str().unwrap();
        // Port 0: no TCP terminal.
        let common = ["-f", &configuration, "-i", &pid, "-z", &zebra, "--vty_socket", directory, "-P", "0"];
        let control = self.place.file("bfdd.sock");
        let more: &[&str] = if daemon == "bfdd" { &["--bfdctl", &control] } else { &[] };
        let command = [&[program.as_str()], &common[..], &["--log", "stdout"], more].concat();
        let mut started = Daemon::start(&self.namespace, &self.place, daemon, &command, &[]);
        let terminal = self.place.file(&format!("{daemon}.vty"));
        started.wait(daemon, || Path::new(&terminal).exists());
        let log = started.log();
        assert!(!log.contains("on config line"), "{daemon} does not take its configuration:\n{log}");
        self.daemons.push(started);
    }

    /// Runs `vtysh` commands one after another and returns their output.
    pub fn vtysh(&self, commands: &[&str]) -> String {
        let directory = self.place.path().to_str().unwrap();
        let arguments = commands.iter().flat_map(|command| ["-c", command]);
        let command: Vec<_> = ["vtysh", "--vty_socket", directory].into_iter().chain(arguments).collect();
        run(&self.namespace, &command)
    }

    /// Runs commands in the configuration mode of `vtysh`, in order.
    pub fn configure(&self, commands: &[&str]) {
        self.vtysh(&[&["configure terminal"], commands].concat());
    }

    /// Runs a `show` command with JSON output in `vtysh`, and returns the output.
    pub fn show(&self, what: &str) -> Value {
        let text = self.vtysh(&[&format!("show {what} json")]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the BFD session with a peer, as FRR shows it in JSON.
    pub fn bfd_peer(&self, peer: &str) -> Value {
        let peers = self.show("bfd peers");
        let found = peers.as_array().unwrap().iter().find(|entry| entry["peer"] == peer);
        found.cloned().unwrap_or_default()
    }

    /// Returns how many times the BFD session with a peer came up, and how many times it went down.
    pub fn bfd_changes(&self, peer: &str) -> (u64, u64) {
        let peers = self.show("bfd peers counters");
        let entry = peers.as_array().unwrap().iter().find(|entry| entry["peer"] == peer).unwrap();
        (entry["session-up"].as_u64().unwrap(), entry["session-down"].as_u64().unwrap())
    }
}

impl Router for Frr {
    fn session(&self, peer: &str) -> Session {
        let all = self.show("bgp neighbors");
        let Some(said) = all.get(peer) else { return Session::default() };
        Session {
            state: said["bgpState"].as_str().unwrap_or_default().to_lowercase(),
            incarnation: said["connectionsEstablished"].to_string(),
            updates: said["messageStats"]["updatesRecv"].as_u64().unwrap_or_default(),
            whole: said.to_string(),
        }
    }

    fn prefixes(&self) -> BTreeMap<String, Kept> {
        let mut found = BTreeMap::new();
        for family in ["ipv4", "ipv6"] {
            let table = self.show(&format!("bgp {family} unicast"));
            for (prefix, paths) in table["routes"].as_object().into_iter().flatten() {
                let is_stale = paths.as_array().unwrap().iter().all(|path| path["stale"] == true);
                found.insert(prefix.clone(), if is_stale { Kept::Stale } else { Kept::Announced });
            }
        }
        found
    }

    fn table(&self) -> BTreeMap<String, Route> {
        let mut found = BTreeMap::new();
        for prefix in self.prefixes().into_keys() {
            let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
            let shown = self.show(&format!("bgp {family} unicast {prefix}"));
            let paths = shown["paths"].as_array().cloned().unwrap_or_default();
            let best = paths.iter().find(|path| path["bestpath"]["overall"] == true).or(paths.first());
            // Otherwise the route was removed meanwhile.
            found.extend(best.map(|path| (prefix, route(path))));
        }
        found
    }

    fn ask_again(&self, peer: &str) {
        self.vtysh(&[&format!("clear bgp {peer} soft in")]);
    }

    fn log(&self) -> String {
        self.daemons.iter().map(Daemon::log).collect()
    }

    fn freeze(&self) {
        self.daemons.iter().for_each(|daemon| daemon.signal(Signal::SIGSTOP));
    }

    fn thaw(&self) {
        self.daemons.iter().for_each(|daemon| daemon.signal(Signal::SIGCONT));
    }
}

fn route(path: &Value) -> Route {
    let number = |field: &str| path[field].as_u64().map(|value| u32::try_from(value).unwrap());
    let words = |field: &str| path[field]["string"].as_str().unwrap_or_default().to_owned();
    let segments = path["aspath"]["segments"].as_array().cloned().unwrap_or_default();
    let path_numbers = segments.iter().flat_map(|segment| {
        assert_eq!(segment["type"], "as-sequence");
        segment["list"].as_array().cloned().unwrap_or_default()
    });
    let hops = path["nexthops"].as_array().cloned().unwrap_or_default();
    let (global, link): (Vec<_>, Vec<_>) = hops.iter().partition(|hop| hop["scope"] != "link-local");
    let standard = words("community").split_whitespace().map(community).collect::<Vec<_>>();
    let large: Vec<_> =
        words("largeCommunity").split_whitespace().map(|text| format!("large:{text}")).collect();
    let extended: Vec<_> =
        words("extendedCommunity").split_whitespace().map(|text| community(&text.to_lowercase())).collect();
    Route {
        origin: path["origin"].as_str().unwrap_or_default().to_lowercase(),
        as_path: path_numbers.map(|number| u32::try_from(number.as_u64().unwrap()).unwrap()).collect(),
        next_hops: global.iter().chain(&link).map(|hop| hop["ip"].as_str().unwrap().to_owned()).collect(),
        med: number("metric"),
        local_pref: number("locPrf"),
        communities: [standard, large, extended].concat().into_iter().collect(),
        is_atomic_aggregate: path["atomicAggregate"] == true,
    }
}

fn configuration(settings: &Settings) -> String {
    let Settings { asn, router_id, peerings } = settings;
    let neighbors: String = peerings.iter().map(neighbor).collect();
    let names: Vec<_> = peerings.iter().map(name).collect();
    let activated: String = names.iter().map(|name| format!("  neighbor {name} activate\n")).collect();
    let families = ["ipv4", "ipv6"]
        .map(|family| format!(" address-family {family} unicast\n{activated} exit-address-family\n"));
    format!(
        "router bgp {asn}\n bgp router-id {router_id}\n bgp log-neighbor-changes\n no bgp ebgp-requires-policy\n\
         \x20no bgp default ipv4-unicast\n bgp bestpath as-path multipath-relax\n{}{neighbors}{}exit\n",
        if peerings.iter().any(|peering| peering.keeps_routes) { KEEPS } else { "" },
        families.concat()
    )
}

const KEEPS: &str = " bgp graceful-restart\n bgp graceful-restart notification\n";

/// Returns the name by which FRR's configuration refers to a neighbor.
fn name(peering: &Peering) -> &str {
    match &peering.peer {
        Peer::Address(name) | Peer::Interface(name) => name,
        Peer::Network(_) => "anybody",
    }
}

fn neighbor(peering: &Peering) -> String {
    let name = name(peering);
    let asn = peering.peer_asn;
    let given = |is_given: bool, line: &str| is_given.then(|| format!(" neighbor {name} {line}"));
    let is_address = matches!(peering.peer, Peer::Address(_));
    let first = match &peering.peer {
        Peer::Address(_) => format!(" neighbor {name} remote-as {asn}"),
        Peer::Interface(_) => format!(" neighbor {name} interface remote-as {asn}"),
        Peer::Network(network) => format!(
            " neighbor {name} peer-group\n neighbor {name} remote-as {asn}\n bgp listen range {network} peer-group {name}"
        ),
    };
    let third = (peering.hold_time / 3).max(1);
    lines(&[
        Some(first),
        given(true, &format!("timers {third} {}", peering.hold_time)),
        given(is_address, "timers connect 1"),
        given(is_address, &format!("update-source {}", peering.local)),
        peering.password.as_ref().map(|password| format!(" neighbor {name} password {password}")),
        peering.hops.map(|hops| format!(" neighbor {name} ebgp-multihop {hops}")),
        given(peering.has_gtsm, "ttl-security hops 1"),
        given(peering.is_passive, "passive"),
        peering.bfd.map(|millis| format!(" neighbor {name} bfd 3 {millis} {millis}")),
        given(peering.has_extended_next_hop, "capability extended-nexthop"),
    ])
}
