//! BGP interoperability scenarios between Tidegate's speaker and any third-party router. Assertions use the
//! routes and sessions that the router reports.
//!
//! A scenario is a function of the [`Kind`] of router; each test file selects its scenarios and lists
//! features that its router lacks.

pub mod bfd;
pub mod ours;
pub mod restarts;
pub mod routes;
pub mod sessions;
pub mod stage;

use std::{collections::BTreeMap, thread, time::Duration};

pub use ours::{Ours, neighbour, route};
pub use stage::Stage;

use super::{
    bfd::eventually,
    speakers::{Bird, ExaBgp, Frr, GoBgp, Kept, Peering, Route, Router, Session, Settings},
};
use crate::support::Namespace;

/// AS number of Tidegate's speaker, a number that needs four octets.
pub const OUR_ASN: u32 = 4_200_000_001;
pub const THEIR_ASN: u32 = 4_200_000_002;
/// IPv4 prefix of a typical Service address.
pub const VIP_V4: &str = "198.51.100.7/32";
pub const VIP_V6: &str = "2001:db8:7::7/128";

/// Kind of router, by its software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Frr,
    Bird,
    GoBgp,
    ExaBgp,
}

/// Third-party router of any kind, running in its namespace.
pub type AnyRouter = Box<dyn Router + Send + Sync>;

impl Kind {
    pub fn start(self, namespace: &Namespace, asn: u32, peerings: Vec<Peering>) -> AnyRouter {
        let settings = Settings { asn, router_id: "192.0.2.2".to_owned(), peerings };
        match self {
            Self::Frr => Box::new(Frr::bgpd(namespace.name(), &settings)),
            Self::Bird => Box::new(Bird::bgp(namespace.name(), &settings)),
            Self::GoBgp => Box::new(GoBgp::start(namespace.name(), &settings)),
            Self::ExaBgp => Box::new(ExaBgp::start(namespace.name(), &settings)),
        }
    }

    /// Returns the short prefix of the namespace names for this kind of router.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Frr => "bgpf",
            Self::Bird => "bgpb",
            Self::GoBgp => "bgpg",
            Self::ExaBgp => "bgpe",
        }
    }
}

/// Waits until the router reports its session with a peer as established, and returns the session.
pub fn wait_established(router: &AnyRouter, peer: &str) -> Session {
    let shown = || format!("{}\n{}", router.session(peer).whole, router.log());
    eventually(&format!("{peer} established"), || router.session(peer).is_established(), shown);
    router.session(peer)
}

/// Waits until the router no longer reports its session with a peer as established.
pub fn wait_lost(router: &AnyRouter, peer: &str) {
    let is_lost = || !router.session(peer).is_established();
    eventually(&format!("{peer} lost"), is_lost, || router.session(peer).whole);
}

/// Waits until the router has exactly these routes with their attributes.
pub fn wait_table(router: &AnyRouter, expected: &BTreeMap<String, Route>) {
    let shown = || format!("expected {expected:#?}\nhas {:#?}\n{}", router.table(), router.log());
    eventually("the routes", || router.table() == *expected, shown);
}

/// Waits until the router has exactly the prefixes `expected`, all announced by a peer whose session is
/// established.
pub fn wait_prefixes(router: &AnyRouter, expected: &[&str]) {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|prefix| ((*prefix).to_owned(), Kept::Announced)).collect();
    let shown = || format!("expected {expected:#?}\nhas {:#?}\n{}", router.prefixes(), router.log());
    eventually("the prefixes", || router.prefixes() == expected, shown);
}

/// Waits long enough for an event that must not happen. The result of a test does not depend on the exact
/// duration.
pub fn linger() {
    thread::sleep(Duration::from_millis(1500));
}
