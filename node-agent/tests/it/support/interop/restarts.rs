//! Interoperability scenarios about the routes that a router keeps or removes after Tidegate's speaker has
//! ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use model::{bgp::settings::BgpNeighbour, kinds::bgp_peer::GracefulRestart};
use node_agent::bgp::Leave;

use super::{
    AnyRouter, Kept, Kind, OUR_ASN, Ours, Stage, THEIR_ASN, neighbour, route, wait_established, wait_lost,
    wait_prefixes,
};
use crate::support::{
    bfd::{V4, eventually},
    speakers::Peering,
};

const STAY: [&str; 4] = ["198.51.100.1/32", "198.51.100.2/32", "2001:db8:7::1/128", "2001:db8:7::2/128"];
const GO: [&str; 2] = ["198.51.100.9/32", "2001:db8:7::9/128"];

fn keeper(kind: Kind, stage: &Stage) -> AnyRouter {
    let peering = Peering { keeps_routes: true, ..Peering::new(V4.1, V4.0, OUR_ASN) };
    kind.start(&stage.theirs, THEIR_ASN, vec![peering])
}

fn restarting() -> BgpNeighbour {
    BgpNeighbour {
        graceful_restart: Some(GracefulRestart { restart_time: 60 }),
        ..neighbour(V4.1, THEIR_ASN)
    }
}

/// Checks Graceful Restart: while Tidegate's speaker restarts, the router always has every route. Routes that
/// are not announced again are removed at End-of-RIB.
pub fn graceful(kind: Kind) {
    let stage = Stage::direct(kind, "gr");
    let router = keeper(kind, &stage);
    let ours = Ours::start(&stage.ours, &[("tor", restarting())]);
    let all = [&STAY[..], &GO].concat();
    ours.announce(&all, &route(&["65000:1"]));
    wait_established(&router, V4.0);
    wait_prefixes(&router, &all);
    ours.wait("tor", "all told", |session| session.counters.prefixes_sent == 6);

    let seen = watch(&router, || {
        ours.leave(Leave::Restart);
        wait_lost(&router, V4.0);
        // The router is polled several times without an announcer.
        let shows_stale = kind != Kind::Bird;
        eventually(
            "stale routes",
            || router.prefixes().values().all(|kept| *kept == Kept::Stale || !shows_stale),
            || format!("{:#?}", router.prefixes()),
        );
        let ours = Ours::restarted(&stage.ours, &[("tor", restarting())]);
        wait_established(&router, V4.0);
        ours.announce(&STAY, &route(&["65000:2"]));
        let is_told = || STAY.iter().all(|prefix| router.table()[*prefix].communities.contains("65000:2"));
        eventually("the new routes", is_told, || format!("{:#?}", router.table()));
        // End-of-RIB is missing: earlier routes stay.
        assert_eq!(router.prefixes().len(), all.len(), "{:?}", router.prefixes());
        ours.complete();
        wait_prefixes(&router, &STAY);
        ours
    });
    seen.assert_never_without(&STAY);
    drop(seen);
}

/// Checks that after a shutdown of Tidegate's speaker the router removes the routes at once, although
/// Graceful Restart was negotiated, and receives the shutdown message.
pub fn shutdown(kind: Kind) {
    let stage = Stage::direct(kind, "hard");
    let router = keeper(kind, &stage);
    let ours = Ours::start(&stage.ours, &[("tor", restarting())]);
    ours.announce(&STAY, &route(&[]));
    wait_established(&router, V4.0);
    wait_prefixes(&router, &STAY);
    ours.leave(Leave::Shutdown("disk of node1 is replaced".to_owned()));
    // The restart time is a minute: no route is kept.
    let kept = || router.prefixes();
    eventually("no routes", || kept().is_empty(), || format!("{:#?}\n{}", kept(), router.log()));
    wait_lost(&router, V4.0);
    // Other routers do not look inside a Hard Reset, and ExaBGP 4.2 cannot parse shutdown messages at all.
    if kind == Kind::Frr {
        let heard = || router.log().contains("disk of node1");
        eventually("the words", heard, || format!("{}\n{}", router.session(V4.0).whole, router.log()));
    }
}

/// Checks that without Graceful Restart the router removes the routes when the session ends.
pub fn ungraceful(kind: Kind) {
    let stage = Stage::direct(kind, "ungr");
    let router = keeper(kind, &stage);
    let ours = Ours::start(&stage.ours, &[("tor", neighbour(V4.1, THEIR_ASN))]);
    ours.announce(&STAY, &route(&[]));
    wait_established(&router, V4.0);
    wait_prefixes(&router, &STAY);
    ours.leave(Leave::Restart);
    wait_lost(&router, V4.0);
    wait_prefixes(&router, &[]);
}

/// Tables of a router that were read repeatedly while an event took place, and the value that the event
/// returned.
struct Seen<T> {
    tables: Vec<BTreeMap<String, Kept>>,
    _result: T,
}

impl<T> Seen<T> {
    fn assert_never_without(&self, prefixes: &[&str]) {
        assert!(self.tables.len() > 3, "it was looked at {} times only", self.tables.len());
        for (number, table) in self.tables.iter().enumerate() {
            let missing: BTreeSet<_> =
                prefixes.iter().filter(|prefix| !table.contains_key(**prefix)).collect();
            assert!(missing.is_empty(), "look {number} of {}: {missing:?} missing", self.tables.len());
        }
    }
}

/// Reads the table of a router repeatedly while `event` runs.
fn watch<T>(router: &AnyRouter, event: impl FnOnce() -> T) -> Seen<T> {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut tables = vec![router.prefixes()];
            while !has_ended.load(Ordering::Relaxed) {
                tables.push(router.prefixes());
            }
            tables
        });
        // The polling thread must end even if the event fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
        has_ended.store(true, Ordering::Relaxed);
        let tables = watcher.join().unwrap();
        match result {
            Ok(result) => Seen { tables, _result: result },
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
