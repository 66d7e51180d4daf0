//! `ExaBGP` as a router of the interoperability tests. `ExaBGP` has no routing table and no BFD, but prints
//! every received message. [`ExaBgp`] builds its table of routes from these messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
};

use model::primitives::community::Community;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    Kept, Peer, Peering, Route, Router, Session, Settings,
    daemon::{Daemon, Place},
    lines,
};

/// Python program that `ExaBGP` starts. Appends the events that `ExaBGP` writes to its input to one file, and
/// sends `ExaBGP` the commands from another file. Ends when its input ends.
const WATCHER: &str = r#"
import os, sys, threading, time

def commands():
    with open(sys.argv[2]) as file:
        while True:
            line = file.readline()
            if line:
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                time.sleep(0.05)

threading.Thread(target=commands, daemon=True).start()
with open(sys.argv[1], "a") as file:
    for line in iter(sys.stdin.readline, ""):
        file.write(line)
        file.flush()
os._exit(0)
"#;
const EVENTS: &str = "events.json";
const COMMANDS: &str = "commands";

/// `ExaBGP` running in a namespace.
pub struct ExaBgp {
    daemon: Daemon,
    place: Place,
}

impl ExaBgp {
    pub fn start(namespace: &str, settings: &Settings) -> Self {
        let place = Place::new(namespace, "exabgp");
        for name in [EVENTS, COMMANDS] {
            place.write(name, "");
        }
        let script = place.write("watcher.py", WATCHER);
        let run = format!("/usr/bin/python3 {script} {} {}", place.file(EVENTS), place.file(COMMANDS));
        let configuration = place.write("exabgp.conf", &configuration(settings, &run));
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let locals: BTreeSet<_> = settings.peerings.iter().map(|peering| peering.local.as_str()).collect();
        let listen = locals.into_iter().collect::<Vec<_>>().join(" ");
        let variables = [
            ("exabgp_daemon_user", "root"),
            ("exabgp_daemon_daemonize", "false"),
            ("exabgp_daemon_drop", "false"),
            ("exabgp_log_destination", "stderr"),
            ("exabgp_log_level", "DEBUG"),
            ("exabgp_log_packets", "true"),
            ("exabgp_api_cli", "false"),
            ("exabgp_api_ack", "false"),
            ("exabgp_tcp_bind", &listen),
            ("exabgp_tcp_port", "179"),
        ];
        let mut daemon = Daemon::start(namespace, &place, "exabgp", &["exabgp", &configuration], &variables);
        daemon.wait("exabgp", || place.read("exabgp.log").contains("loaded new configuration"));
        Self { daemon, place }
    }

    /// Returns all events so far: changes of session states, and messages in both directions.
    pub fn events(&self) -> Vec<Value> {
        let text = self.place.read(EVENTS);
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// Returns the events of the type `kind` that concern the peer `peer`.
    pub fn events_of(&self, peer: &str, kind: &str) -> Vec<Value> {
        let mut events = self.events();
        events.retain(|event| event["type"] == kind && event["neighbor"]["address"]["peer"] == peer);
        events
    }

    /// Returns the NOTIFICATION messages of the sessions with a peer, each as text: direction, code, subcode
    /// and data.
    pub fn words(&self, peer: &str) -> Vec<String> {
        let said = |event: Value| {
            let (direction, said) = (&event["neighbor"]["direction"], &event["neighbor"]["notification"]);
            let digits = said["data"].as_str().unwrap_or_default().trim_start_matches("0x").to_owned();
            let bytes = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let bytes: Vec<u8> = bytes.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            format!("{direction} {}/{} {text}", said["code"], said["subcode"])
        };
        self.events_of(peer, "notification").into_iter().map(said).collect()
    }

    /// Sends a command to the API of `ExaBGP`.
    pub fn command(&self, line: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.place.path().join(COMMANDS)).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

impl Router for ExaBgp {
    fn session(&self, peer: &str) -> Session {
        let states = self.events_of(peer, "state");
        let Some(last) = states.last() else { return Session::default() };
        let state = last["neighbor"]["state"].as_str().unwrap();
        let ups = states.iter().filter(|event| event["neighbor"]["state"] == "up").count();
        let received = self.events_of(peer, "update");
        let tells = |event: &&Value| event["neighbor"]["message"].get("update").is_some();
        Session {
            state: if state == "up" { "established".to_owned() } else { state.to_owned() },
            incarnation: ups.to_string(),
            updates: received.iter().filter(tells).count() as u64,
            whole: format!("{states:?} {:?}", self.words(peer)),
        }
    }

    fn prefixes(&self) -> BTreeMap<String, Kept> {
        self.table().into_keys().map(|prefix| (prefix, Kept::Announced)).collect()
    }

    fn table(&self) -> BTreeMap<String, Route> {
        let mut tables: BTreeMap<String, BTreeMap<String, Route>> = BTreeMap::new();
        for event in self.events() {
            let neighbor = &event["neighbor"];
            let peer = neighbor["address"]["peer"].as_str().unwrap_or_default().to_owned();
            let table = tables.entry(peer).or_default();
            if event["type"] == "state" && neighbor["state"] != "connected" {
                table.clear();
            } else if event["type"] == "update" {
                take(table, &neighbor["message"]["update"]);
            }
        }
        tables.into_values().flatten().collect()
    }

    fn ask_again(&self, peer: &str) {
        for family in ["ipv4", "ipv6"] {
            self.command(&format!("neighbor {peer} announce route-refresh {family} unicast"));
        }
    }

    fn log(&self) -> String {
        self.daemon.log()
    }

    fn freeze(&self) {
        self.daemon.signal(Signal::SIGSTOP);
    }

    fn thaw(&self) {
        self.daemon.signal(Signal::SIGCONT);
    }
}

/// Applies the `update` part of a received message to a table of routes.
fn take(table: &mut BTreeMap<String, Route>, update: &Value) {
    let families = |part: &str| update[part].as_object().cloned().unwrap_or_default().into_values();
    let prefix = |entry: &Value| entry["nlri"].as_str().unwrap_or_default().to_owned();
    for entries in families("withdraw") {
        for entry in entries.as_array().into_iter().flatten() {
            table.remove(&prefix(entry));
        }
    }
    for by_next_hop in families("announce") {
        for (next_hop, entries) in by_next_hop.as_object().into_iter().flatten() {
            for entry in entries.as_array().into_iter().flatten() {
                table.insert(prefix(entry), route(&update["attribute"], next_hop));
            }
        }
    }
}

fn route(attributes: &Value, next_hop: &str) -> Route {
    let number = |field: &str| attributes[field].as_u64().map(|value| u32::try_from(value).unwrap());
    let list = |field: &str| attributes[field].as_array().cloned().unwrap_or_default();
    let small = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let standard = list("community")
        .into_iter()
        .map(|pair| Community::Standard(small(&pair[0]) << 16 | small(&pair[1])).to_string());
    let large = list("large-community").into_iter();
    let large = large.map(|triple| format!("large:{}:{}:{}", triple[0], triple[1], triple[2]));
    let extended = list("extended-community").into_iter();
    let extended =
        extended.map(|said| Community::Extended(said["value"].as_u64().unwrap().to_be_bytes()).to_string());
    Route {
        origin: attributes["origin"].as_str().unwrap_or_default().to_owned(),
        as_path: list("as-path").iter().map(small).collect(),
        next_hops: vec![next_hop.to_owned()],
        med: number("med"),
        local_pref: number("local-preference"),
        communities: standard.chain(large).chain(extended).collect(),
        is_atomic_aggregate: attributes["atomic-aggregate"] == true,
    }
}

fn configuration(settings: &Settings, watcher: &str) -> String {
    let neighbors: String = settings.peerings.iter().map(|peering| neighbor(settings, peering)).collect();
    format!("process watcher {{\n run {watcher};\n encoder json;\n}}\n{neighbors}")
}

fn neighbor(settings: &Settings, peering: &Peering) -> String {
    let Peer::Address(address) = &peering.peer else { panic!("not tried with ExaBGP: {:?}", peering.peer) };
    let body = lines(&[
        Some(format!(" router-id {};\n local-address {};", settings.router_id, peering.local)),
        Some(format!(" local-as {};\n peer-as {};", settings.asn, peering.peer_asn)),
        Some(format!(" hold-time {};", peering.hold_time)),
        peering.password.as_ref().map(|password| format!(" md5-password \"{password}\";")),
        peering.hops.map(|hops| format!(" outgoing-ttl {hops};")),
        peering.has_gtsm.then(|| " outgoing-ttl 255;\n incoming-ttl 255;".to_owned()),
        peering.is_passive.then(|| " passive true;".to_owned()),
        Some(" family {\n  ipv4 unicast;\n  ipv6 unicast;\n }".to_owned()),
        Some(format!(
            " capability {{\n  asn4 enable;\n  route-refresh enable;\n  graceful-restart {};\n  nexthop {};\n }}",
            if peering.keeps_routes { "60" } else { "disable" },
            if peering.has_extended_next_hop { "enable" } else { "disable" }
        )),
        peering.has_extended_next_hop.then(|| " nexthop {\n  ipv4 unicast ipv6;\n }".to_owned()),
        Some(
            " api {\n  processes [ watcher ];\n  neighbor-changes;\n  receive {\n   parsed;\n   open;\n   update;\n   \
             notification;\n  }\n }"
                .to_owned(),
        ),
    ]);
    format!("neighbor {address} {{\n{body}}}\n")
}
