//! `GoBGP` as a router of the interoperability tests. The version in Debian 12 has no BFD.

use std::collections::{BTreeMap, BTreeSet};

use model::primitives::community::Community;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    Kept, Peer, Peering, Route, Router, Session, Settings, community,
    daemon::{Daemon, Place, run, try_run},
    lines,
};

/// Path attribute types in the JSON of `GoBGP`, equal to those in BGP messages.
mod kind {
    pub(super) const ORIGIN: u64 = 1;
    pub(super) const AS_PATH: u64 = 2;
    pub(super) const NEXT_HOP: u64 = 3;
    pub(super) const MED: u64 = 4;
    pub(super) const LOCAL_PREF: u64 = 5;
    pub(super) const ATOMIC_AGGREGATE: u64 = 6;
    pub(super) const COMMUNITIES: u64 = 8;
    pub(super) const MP_REACH: u64 = 14;
    pub(super) const EXTENDED_COMMUNITIES: u64 = 16;
    pub(super) const LARGE_COMMUNITIES: u64 = 32;
}

/// `gobgpd` running in a namespace.
pub struct GoBgp {
    daemon: Daemon,
    namespace: String,
    _place: Place,
}

impl GoBgp {
    pub fn start(namespace: &str, settings: &Settings) -> Self {
        let place = Place::new(namespace, "gobgp");
        let configuration = place.write("gobgpd.toml", &configuration(settings));
        let command = ["gobgpd", "-f", &configuration, "--api-hosts", "127.0.0.1:50051", "--pprof-disable"];
        let mut daemon =
            Daemon::start(namespace, &place, "gobgpd", &[&command[..], &["-l", "debug"]].concat(), &[]);
        daemon.wait("gobgpd", || {
            try_run(namespace, &["gobgp", "global"]).is_ok_and(|text| text.contains("AS:"))
        });
        Self { daemon, namespace: namespace.to_owned(), _place: place }
    }

    pub fn gobgp(&self, command: &[&str]) -> String {
        run(&self.namespace, &[&["gobgp"], command].concat())
    }

    pub fn show(&self, command: &[&str]) -> Value {
        let text = self.gobgp(&[&["-j"], command].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn paths(&self) -> BTreeMap<String, Vec<Value>> {
        let tables = ["ipv4", "ipv6"].map(|family| self.show(&["global", "rib", "-a", family]));
        let rows = tables.iter().filter_map(Value::as_object).flatten();
        rows.map(|(prefix, paths)| (prefix.clone(), paths.as_array().cloned().unwrap_or_default())).collect()
    }
}

impl Router for GoBgp {
    fn session(&self, peer: &str) -> Session {
        let all = self.show(&["neighbor"]);
        let is_peer = |said: &&Value| said["state"]["neighbor_address"] == peer;
        let Some(said) = all.as_array().unwrap().iter().find(is_peer) else { return Session::default() };
        let state = &said["state"];
        // 6 is the last of the six states in RFC 4271.
        let is_established = state["session_state"] == 6 || state["session_state"] == "ESTABLISHED";
        Session {
            state: if is_established { "established".to_owned() } else { state["session_state"].to_string() },
            incarnation: said["timers"]["state"]["uptime"].to_string(),
            updates: state["messages"]["received"]["update"].as_str().map_or_else(
                || state["messages"]["received"]["update"].as_u64().unwrap_or_default(),
                |text| text.parse().unwrap(),
            ),
            whole: said.to_string(),
        }
    }

    fn prefixes(&self) -> BTreeMap<String, Kept> {
        let kept = |paths: &[Value]| match paths.iter().all(|path| path["stale"] == true) {
            true => Kept::Stale,
            false => Kept::Announced,
        };
        self.paths().into_iter().map(|(prefix, paths)| (prefix, kept(&paths))).collect()
    }

    fn table(&self) -> BTreeMap<String, Route> {
        let first = |(prefix, paths): (String, Vec<Value>)| Some((prefix, route(paths.first()?)));
        self.paths().into_iter().filter_map(first).collect()
    }

    fn ask_again(&self, peer: &str) {
        panic!("GoBGP remembers all that {peer} said and never asks again");
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

fn route(path: &Value) -> Route {
    let mut route = Route::default();
    for attribute in path["attrs"].as_array().into_iter().flatten() {
        take(&mut route, attribute);
    }
    route
}

fn take(route: &mut Route, attribute: &Value) {
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let list = |field: &str| attribute[field].as_array().cloned().unwrap_or_default();
    match attribute["type"].as_u64().unwrap() {
        kind::ORIGIN => {
            let names = ["igp", "egp", "incomplete"];
            names[number(&attribute["value"]) as usize].clone_into(&mut route.origin);
        }
        kind::AS_PATH => {
            let segments = list("as_paths").into_iter();
            let numbers =
                segments.flat_map(|segment| segment["asns"].as_array().cloned().unwrap_or_default());
            route.as_path = numbers.map(|asn| number(&asn)).collect();
        }
        kind::NEXT_HOP | kind::MP_REACH => {
            route.next_hops = vec![attribute["nexthop"].as_str().unwrap().to_owned()];
        }
        kind::MED => route.med = Some(number(&attribute["metric"])),
        kind::LOCAL_PREF => route.local_pref = Some(number(&attribute["value"])),
        kind::ATOMIC_AGGREGATE => route.is_atomic_aggregate = true,
        kind::COMMUNITIES => {
            let values = list("communities").into_iter();
            route.communities.extend(values.map(|value| Community::Standard(number(&value)).to_string()));
        }
        kind::EXTENDED_COMMUNITIES => route.communities.extend(list("value").iter().map(extended)),
        kind::LARGE_COMMUNITIES => {
            let text = |value: &Value| {
                format!("large:{}:{}:{}", value["ASN"], value["LocalData1"], value["LocalData2"])
            };
            route.communities.extend(list("value").iter().map(text).collect::<BTreeSet<_>>());
        }
        _ => {}
    }
}

/// Formats an extended community. `GoBGP` prints four-octet AS numbers in dotted notation.
fn extended(said: &Value) -> String {
    let value = said["value"].as_str().unwrap_or_default();
    let word = match said["subtype"].as_u64() {
        Some(2) => "rt",
        Some(3) => "soo",
        _ => return said.to_string(),
    };
    let (who, last) = value.split_once(':').unwrap();
    match (said["type"].as_u64(), who.split_once('.')) {
        (Some(2), Some((high, low))) => {
            let asn = high.parse::<u32>().unwrap() << 16 | low.parse::<u32>().unwrap();
            community(&format!("{word}:{asn}:{last}"))
        }
        _ => community(&format!("{word}:{who}:{last}")),
    }
}

fn configuration(settings: &Settings) -> String {
    let Settings { asn, router_id, peerings } = settings;
    let neighbors: String = peerings.iter().map(neighbor).collect();
    let locals: BTreeSet<_> = peerings.iter().map(|peering| format!("\"{}\"", peering.local)).collect();
    let locals: Vec<_> = locals.into_iter().collect();
    format!(
        "[global.config]\nas = {asn}\nrouter-id = \"{router_id}\"\nlocal-address-list = [{}]\n{neighbors}",
        locals.join(", ")
    )
}

fn neighbor(peering: &Peering) -> String {
    let (kind, identity) = match &peering.peer {
        Peer::Address(address) => ("neighbors", format!("neighbor-address = \"{address}\"")),
        Peer::Network(_) => ("peer-groups", "peer-group-name = \"anybody\"".to_owned()),
        Peer::Interface(_) => panic!("not tried with GoBGP"),
    };
    let hold_time = peering.hold_time;
    let table = |name: &str| format!("[{kind}.{name}.config]");
    let families = ["ipv4-unicast", "ipv6-unicast"].map(|family| {
        format!(
            "[[{kind}.afi-safis]]\n[{kind}.afi-safis.config]\nafi-safi-name = \"{family}\"\n\
             [{kind}.afi-safis.mp-graceful-restart.config]\nenabled = {}\n",
            peering.keeps_routes
        )
    });
    let text = lines(&[
        Some(format!("[[{kind}]]\n[{kind}.config]\n{identity}\npeer-as = {}", peering.peer_asn)),
        peering.password.as_ref().map(|password| format!("auth-password = \"{password}\"")),
        Some(table("timers")),
        Some(format!("hold-time = {hold_time}\nkeepalive-interval = {}", (hold_time / 3).max(1))),
        Some("connect-retry = 1\nidle-hold-time-after-reset = 1".to_owned()),
        Some(table("transport")),
        matches!(peering.peer, Peer::Address(_)).then(|| format!("local-address = \"{}\"", peering.local)),
        peering.is_passive.then(|| "passive-mode = true".to_owned()),
        peering.hops.map(|hops| format!("{}\nenabled = true\nmultihop-ttl = {hops}", table("ebgp-multihop"))),
        peering.has_gtsm.then(|| format!("{}\nenabled = true\nttl-min = 255", table("ttl-security"))),
        peering.keeps_routes.then(|| {
            format!(
                "{}\nenabled = true\nnotification-enabled = true\nrestart-time = 60",
                table("graceful-restart")
            )
        }),
    ]);
    let range = match &peering.peer {
        Peer::Network(network) => format!(
            "[[dynamic-neighbors]]\n[dynamic-neighbors.config]\nprefix = \"{network}\"\npeer-group = \"anybody\"\n"
        ),
        Peer::Address(_) | Peer::Interface(_) => String::new(),
    };
    text + &families.concat() + &range
}
