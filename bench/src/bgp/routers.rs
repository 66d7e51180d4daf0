//! Pair of routers, FRR and BIRD, with a live view of the routes in their kernels.

use std::{
    collections::BTreeMap,
    fmt,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use lab::{
    host::{netns::Namespace, wait},
    network::topology::{Topology, fabric_addresses},
    processes::routers::{Bird, Frr, RouterPlan},
};

use super::announcer::{ASN, HOLD_TIME};

/// AS number that FRR and BIRD share.
pub(super) const ROUTER_ASN: u32 = 64_600;
/// BFD interval in milliseconds and detection multiplier: the defaults of FRR and of Tidegate.
pub(super) const BFD: (u32, u8) = (300, 3);
const FRR_HOST: u8 = 1;
const BIRD_HOST: u8 = 2;

/// State of a prefix in the kernel of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefixState {
    There,
    Gone,
}

/// Pair of values, one per router.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Both<T> {
    /// Value measured for the FRR router.
    pub frr: T,
    /// Value measured for the BIRD router.
    pub bird: T,
}

impl<T> Both<T> {
    pub(super) fn map<U>(self, convert: impl Fn(T) -> U) -> Both<U> {
        Both { frr: convert(self.frr), bird: convert(self.bird) }
    }
}

impl<T: fmt::Debug> fmt::Display for Both<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (FRR), {:?} (BIRD)", self.frr, self.bird)
    }
}

/// FRR and BIRD routers of one BGP implementation under test.
pub(super) struct Routers {
    pub(super) frr: Frr,
    pub(super) bird: Bird,
    frr_kernel: Monitor,
    bird_kernel: Monitor,
    announcer: IpAddr,
}

impl Routers {
    /// Starts FRR and BIRD on the fabric, each with the announcer as its neighbor.
    pub(super) fn start(topology: &Topology, announcer: IpAddr) -> Result<Self> {
        let place = |role: &str, host| topology.add_place(role, host);
        let (frr, bird) = (place("frr", FRR_HOST)?, place("bird", BIRD_HOST)?);
        let plan = |host| RouterPlan {
            bfd: Some(BFD),
            hold_time: HOLD_TIME,
            ..RouterPlan::new(ROUTER_ASN, Ipv4Addr::new(172, 17, 8, host), vec![(announcer, ASN)])
        };
        Ok(Self {
            frr_kernel: Monitor::start(&frr)?,
            bird_kernel: Monitor::start(&bird)?,
            frr: Frr::start(&frr, &plan(FRR_HOST))?,
            bird: Bird::start(&bird, &plan(BIRD_HOST))?,
            announcer,
        })
    }

    /// Returns the fabric addresses of the two routers.
    pub(super) fn addresses() -> [IpAddr; 2] {
        [FRR_HOST, BIRD_HOST].map(|host| fabric_addresses(host)[0])
    }

    /// Waits until the BGP sessions of FRR and BIRD are established.
    pub(super) fn wait_established(&self) -> Result<()> {
        wait::until("both routers to have established sessions", || {
            ensure!(self.frr.is_established(self.announcer)?, "FRR: {}", self.frr.vtysh("show bgp summary")?);
            ensure!(self.bird.is_established(0)?, "BIRD: {}", self.bird.birdc("show protocols all")?);
            Ok(())
        })
    }

    /// Waits until FRR and BIRD each have a BFD session that is up.
    pub(super) fn wait_watched(&self) -> Result<()> {
        wait::until("both routers to have a BFD session with the announcer", || {
            let frr = self.frr.show("bfd peers")?;
            let is_up = frr.as_array().is_some_and(|peers| peers.iter().any(|peer| peer["status"] == "up"));
            ensure!(is_up, "FRR: {frr:#}");
            let bird = self.bird.birdc("show bfd sessions")?;
            ensure!(bird.contains(" Up "), "BIRD: {bird}");
            Ok(())
        })
    }

    /// Waits until the kernels of both routers report the given state of a prefix after `since`. Returns the
    /// time from `since` to each report.
    pub(super) fn wait(
        &self,
        prefix: &str,
        seen: PrefixState,
        since: Instant,
        patience: Duration,
    ) -> Result<Both<Duration>> {
        let one = |monitor: &Monitor, who: &str| {
            wait::until_within(patience, &format!("{prefix} to be {seen:?} in the kernel of {who}"), || {
                monitor.at(prefix, seen, since).context("not yet").map(|at| at - since)
            })
        };
        Ok(Both { frr: one(&self.frr_kernel, "FRR")?, bird: one(&self.bird_kernel, "BIRD")? })
    }

    /// Waits until the kernels of both routers have `count` prefixes. Returns the time from `since` to the
    /// last new prefix in each.
    pub(super) fn wait_count(
        &self,
        count: usize,
        since: Instant,
        patience: Duration,
    ) -> Result<Both<Duration>> {
        let one = |monitor: &Monitor, who: &str| {
            wait::until_within(patience, &format!("{count} prefixes in the kernel of {who}"), || {
                let (there, last) = monitor.count();
                ensure!(there >= count, "{there} are installed");
                Ok(last.context("none")?.saturating_duration_since(since))
            })
        };
        Ok(Both { frr: one(&self.frr_kernel, "FRR")?, bird: one(&self.bird_kernel, "BIRD")? })
    }
}

/// Recorder of the route changes that `ip monitor route` prints, with the time of each.
struct Monitor {
    child: Child,
    routes: Arc<Mutex<Routes>>,
}

#[derive(Default)]
struct Routes {
    /// Last reported state of each prefix.
    last: BTreeMap<String, (PrefixState, Instant)>,
    there: usize,
    grown: Option<Instant>,
}

impl Monitor {
    fn start(namespace: &Namespace) -> Result<Self> {
        let mut child = Command::new("ip")
            .args(["-4", "-n", namespace.name(), "monitor", "route"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `ip monitor`")?;
        let lines = BufReader::new(child.stdout.take().context("stdout was configured as a pipe")?).lines();
        let routes = Arc::new(Mutex::new(Routes::default()));
        let shared = Arc::clone(&routes);
        thread::Builder::new().name("monitor".to_owned()).spawn(move || {
            for line in lines.map_while(Result::ok) {
                lock(&shared).take(&line, Instant::now());
            }
        })?;
        Ok(Self { child, routes })
    }

    /// Returns the time of the last kernel report about a prefix, or `None` if the reported state differs from
    /// `seen` or the report is older than `since`.
    fn at(&self, prefix: &str, seen: PrefixState, since: Instant) -> Option<Instant> {
        let (said, at) = *lock(&self.routes).last.get(prefix)?;
        (said == seen && at >= since).then_some(at)
    }

    fn count(&self) -> (usize, Option<Instant>) {
        let routes = lock(&self.routes);
        (routes.there, routes.grown)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Routes {
    /// Records a route change from a line `PREFIX via …` or `Deleted PREFIX via …`. Ignores indented lines,
    /// which contain further next hops, and routes that neither FRR's BGP nor BIRD has installed.
    fn take(&mut self, line: &str, now: Instant) {
        let (seen, rest) = match line.strip_prefix("Deleted ") {
            Some(rest) => (PrefixState::Gone, rest),
            None => (PrefixState::There, line),
        };
        if line.starts_with(char::is_whitespace)
            || !(rest.contains("proto bgp") || rest.contains("proto bird"))
        {
            return;
        }
        let Some(prefix) = rest.split_whitespace().next() else { return };
        let before = self.last.insert(prefix.to_owned(), (seen, now)).map(|(seen, _)| seen);
        match (before, seen) {
            (Some(PrefixState::There), PrefixState::Gone) => self.there -= 1,
            (None | Some(PrefixState::Gone), PrefixState::There) => {
                self.there += 1;
                self.grown = Some(now);
            }
            (Some(PrefixState::There), PrefixState::There)
            | (None | Some(PrefixState::Gone), PrefixState::Gone) => {}
        }
    }
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().expect("no holder of the lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_monitor_are_counted_by_prefix() {
        let mut routes = Routes::default();
        let now = Instant::now();
        for line in [
            "10.200.0.1 nhid 8 via 172.17.8.101 dev eth0 proto bgp metric 20 ",
            "10.200.0.2 via 172.17.8.101 dev eth0 proto bird metric 32 ",
            "10.200.0.1 nhid 9 via 172.17.8.101 dev eth0 proto bgp metric 20 ",
            "Deleted 10.200.0.2 via 172.17.8.101 dev eth0 proto bird metric 32 ",
            "local 10.0.0.1 dev eth0 table local proto kernel scope host src 10.0.0.1 ",
            "\tnexthop via 172.17.8.102 dev eth0 weight 1 ",
        ] {
            routes.take(line, now);
        }
        assert_eq!(routes.there, 1);
        assert_eq!(routes.last.get("10.200.0.2").map(|(seen, _)| *seen), Some(PrefixState::Gone));
    }
}
