//! BIRD 2 as a router of the interoperability tests.

use std::{collections::BTreeMap, path::Path, sync::Mutex};

use nix::sys::signal::Signal;

use super::{
    Kept, Peer, Peering, Route, Router, Session, Settings, community,
    daemon::{Daemon, Place, run},
    lines,
};

/// Maximum difference in milliseconds between the start times that BIRD prints for one session. BIRD computes
/// the time from two clocks for each output, so that the outputs differ slightly.
const CLOCKS_APART_MS: u64 = 20;

/// BIRD in a namespace. Learned routes are kept only in BIRD's own tables.
pub struct Bird {
    daemon: Daemon,
    namespace: String,
    place: Place,
    /// Start times of sessions, each as BIRD printed it the first time.
    begun: Mutex<Vec<String>>,
}

impl Bird {
    pub fn start(namespace: &str, configuration: &str) -> Self {
        let place = Place::new(namespace, "bird");
        let configuration = place.write("bird.conf", configuration);
        let (control, pid) = (place.file("bird.ctl"), place.file("bird.pid"));
        let command = ["bird", "-f", "-c", &configuration, "-s", &control, "-P", &pid];
        let mut daemon = Daemon::start(namespace, &place, "bird", &command, &[]);
        daemon.wait("bird", || Path::new(&control).exists());
        Self { daemon, namespace: namespace.to_owned(), place, begun: Mutex::default() }
    }

    /// Starts BIRD with a BGP protocol for each session in `settings`, called `peer0`, `peer1` and so on.
    pub fn bgp(namespace: &str, settings: &Settings) -> Self {
        Self::start(namespace, &configuration(settings))
    }

    pub fn birdc(&self, command: &[&str]) -> String {
        let control = self.place.file("bird.ctl");
        run(&self.namespace, &[&["birdc", "-s", &control], command].concat())
    }

    /// Replaces the configuration of the running BIRD.
    pub fn configure(&self, configuration: &str) {
        self.place.write("bird.conf", configuration);
        let answer = self.birdc(&["configure"]);
        assert!(answer.contains("Reconfigur"), "{answer}");
    }

    /// Returns the columns of BIRD's output for the BFD session with a peer: address, interface, state,
    /// since, interval, timeout.
    pub fn bfd_session(&self, peer: &str) -> Vec<String> {
        let text = self.birdc(&["show", "bfd", "sessions"]);
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(peer));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    pub fn bfd_is_up(&self, peer: &str) -> bool {
        self.bfd_session(peer).get(2).is_some_and(|state| state == "Up")
    }

    /// Returns the start time of a session as BIRD printed it the first time. Later outputs may differ
    /// slightly (see [`CLOCKS_APART_MS`]), but the result is always equal and so identifies the session.
    fn begun(&self, since: String) -> String {
        let mut begun = self.begun.lock().unwrap();
        let is_same = |known: &&String| milliseconds(known).abs_diff(milliseconds(&since)) <= CLOCKS_APART_MS;
        if let Some(known) = begun.iter().find(is_same) {
            return known.clone();
        }
        begun.push(since.clone());
        since
    }

    fn protocol(&self, peer: &str) -> Option<String> {
        let text = self.birdc(&["show", "protocols", "all"]);
        let mut protocols: Vec<String> = Vec::new();
        for line in text.lines() {
            match protocols.last_mut() {
                Some(protocol) if line.starts_with(' ') => *protocol += line,
                _ => protocols.push(line.to_owned()),
            }
            *protocols.last_mut().unwrap() += "\n";
        }
        let is_peer = |protocol: &String| value(protocol, "Neighbor address") == Some(peer);
        protocols.into_iter().find(is_peer)
    }
}

impl Router for Bird {
    fn session(&self, peer: &str) -> Session {
        let Some(whole) = self.protocol(peer) else { return Session::default() };
        let words: Vec<_> = whole.lines().next().unwrap().split_whitespace().collect();
        // Columns: name, BGP, table, state, since (date, time), more.
        Session {
            state: value(&whole, "BGP state").unwrap_or_default().to_lowercase(),
            incarnation: self.begun(words.get(4..6).unwrap_or_default().join(" ")),
            updates: counted(&whole, "Import updates") + counted(&whole, "Import withdraws"),
            whole: whole.clone(),
        }
    }

    fn prefixes(&self) -> BTreeMap<String, Kept> {
        self.table().into_keys().map(|prefix| (prefix, Kept::Announced)).collect()
    }

    fn table(&self) -> BTreeMap<String, Route> {
        let text = self.birdc(&["show", "route", "primary", "all"]);
        let mut found: BTreeMap<String, Route> = BTreeMap::new();
        let mut route: Option<&mut Route> = None;
        for line in text.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if !line.starts_with(char::is_whitespace) && first.contains('/') {
                route = Some(found.entry(first.to_owned()).or_default());
            } else if let (Some(route), Some((key, value))) = (route.as_mut(), line.trim().split_once(": ")) {
                attribute(route, key, value);
            } else if let (Some(route), "BGP.atomic_aggr:") = (route.as_mut(), line.trim()) {
                route.is_atomic_aggregate = true;
            }
        }
        found
    }

    fn ask_again(&self, peer: &str) {
        let protocol = self.protocol(peer).unwrap();
        self.birdc(&["reload", "in", protocol.split_whitespace().next().unwrap()]);
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

/// Converts the time of day in a text with date and time to milliseconds since midnight.
fn milliseconds(since: &str) -> u64 {
    let time = since.split(' ').next_back().unwrap_or_default();
    let numbers = time.split([':', '.']).map(|number| number.parse().unwrap_or(0));
    numbers.zip([3_600_000, 60_000, 1000, 1]).map(|(number, of): (u64, u64)| number * of).sum()
}

/// Returns the rest of the first line of `text` that starts with `key`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// Returns the sum of the first numbers in all lines `key: …` of BIRD's output, which has one such line for
/// each channel (address family).
fn counted(text: &str, key: &str) -> u64 {
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
    rows.filter_map(|row| row.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

fn attribute(route: &mut Route, key: &str, value: &str) {
    let number = || Some(value.trim().parse().unwrap());
    match key {
        "BGP.origin" => route.origin = value.to_lowercase(),
        "BGP.as_path" => route.as_path = value.split_whitespace().map(|asn| asn.parse().unwrap()).collect(),
        "BGP.next_hop" => route.next_hops = value.split_whitespace().map(str::to_owned).collect(),
        "BGP.med" => route.med = number(),
        "BGP.local_pref" => route.local_pref = number(),
        "BGP.community" => route.communities.extend(tuples(value).map(|text| community(&text))),
        "BGP.large_community" => route.communities.extend(tuples(value).map(|text| format!("large:{text}"))),
        "BGP.ext_community" => {
            // BIRD prints the site of origin as route origin.
            let texts = tuples(value).map(|text| community(&text.replace("ro:", "soo:")));
            route.communities.extend(texts);
        }
        _ => {}
    }
}

/// Parses a list such as `(65000, 1) (65000,2)` and returns its items in the form `65000:1`, `65000:2`.
fn tuples(text: &str) -> impl Iterator<Item = String> {
    let inner =
        text.split('(').filter_map(|part| part.split(')').next()).filter(|part| !part.trim().is_empty());
    inner.map(|tuple| tuple.split(',').map(str::trim).collect::<Vec<_>>().join(":"))
}

fn configuration(settings: &Settings) -> String {
    let protocols = settings.peerings.iter().enumerate();
    let protocols: String =
        protocols.map(|(number, peering)| protocol(settings.asn, number, peering)).collect();
    format!(
        "log stderr all;\ntimeformat protocol iso long ms;\nrouter id {};\nprotocol device {{}}\nprotocol bfd {{}}\n{protocols}",
        settings.router_id
    )
}

fn protocol(asn: u32, number: usize, peering: &Peering) -> String {
    let Peering { local, peer_asn, hold_time, .. } = peering;
    let given = |is_given: bool, line: &str| is_given.then(|| line.to_owned());
    let neighbor = match &peering.peer {
        Peer::Address(address) => format!("neighbor {address} as {peer_asn};"),
        Peer::Network(network) => format!("neighbor range {network} as {peer_asn}; dynamic name \"peer\";"),
        Peer::Interface(_) => panic!("BIRD finds no neighbours by their interface"),
    };
    let settings = lines(&[
        Some(format!("local {local} as {asn}; {neighbor}")),
        Some(format!("debug {{ states, events }}; hold time {hold_time};")),
        given(true, "connect delay time 1; connect retry time 1; error wait time 1, 2;"),
        Some(peering.hops.map_or_else(|| "direct;".to_owned(), |hops| format!("multihop {hops};"))),
        peering.password.as_ref().map(|password| format!("password \"{password}\";")),
        given(peering.has_gtsm, "ttl security on;"),
        given(peering.is_passive, "passive on;"),
        Some(format!("graceful restart {};", if peering.keeps_routes { "on" } else { "aware" })),
        peering.bfd.map(|millis| format!("bfd {{ interval {millis} ms; multiplier 3; }};")),
    ]);
    let extended = if peering.has_extended_next_hop { "extended next hop on;" } else { "" };
    format!(
        "protocol bgp peer{number} {{\n{settings}ipv4 {{ import all; export none; {extended} }};\nipv6 {{ import all; export none; }};\n}}\n"
    )
}
