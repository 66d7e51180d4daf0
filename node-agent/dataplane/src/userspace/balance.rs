//! Selection of the target for a new connection or flow. Pure: time and load are arguments.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use model::{kinds::service::ProxyProtocol, primitives::quantity::Weight, program::Target};

use super::{desired::Policy, listing::ListenerListing};

/// Maximum number of source addresses with session affinity per Service port. Beyond it, the least recently used
/// source is dropped.
pub const AFFINITY_SOURCES_MAX: usize = 65_536;

/// Load balancer of one listener: policy, targets with weights, and session affinity.
#[derive(Debug)]
pub struct Balancer {
    policy: Policy,
    shares: BTreeMap<Target, Share>,
    affinity: Option<SharedAffinity>,
}

/// Session affinity that all listeners of a Service port share, so that a client has the same target at each of its
/// frontends.
pub type SharedAffinity = Arc<Mutex<Affinity>>;

#[derive(Debug, Clone, Copy)]
struct Share {
    weight: i64,
    /// Current weight of the target in the smooth weighted round robin: high if the target has received
    /// fewer connections than its share. The target with the highest credit is selected next.
    credit: i64,
}

impl Balancer {
    /// Creates a balancer without targets.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, shares: BTreeMap::new(), affinity: None }
    }

    /// Updates policy, targets and affinity. A target that remains keeps its credit in the round robin, and the
    /// sources that `affinity` assigns to it.
    pub fn update(
        &mut self,
        policy: Policy,
        targets: &BTreeMap<Target, Weight>,
        affinity: Option<SharedAffinity>,
    ) {
        self.policy = policy;
        let old = std::mem::take(&mut self.shares);
        let credit = |target| old.get(target).map_or(0, |share| share.credit);
        self.shares = targets
            .iter()
            .filter(|(_, weight)| weight.0 > 0)
            .map(|(target, weight)| (*target, Share { weight: i64::from(weight.0), credit: credit(target) }))
            .collect();
        self.affinity = affinity;
    }

    /// Returns the configuration of the listener as shown in a preview, with the given PROXY protocol
    /// version.
    pub(super) fn told(&self, proxy_protocol: Option<ProxyProtocol>) -> ListenerListing {
        let weight = |share: &Share| Weight(u16::try_from(share.weight).unwrap_or(u16::MAX));
        ListenerListing {
            policy: self.policy,
            targets: self.shares.iter().map(|(target, share)| (*target, weight(share))).collect(),
            affinity_seconds: self.affinity.as_ref().map(|affinity| lock(affinity).timeout_secs()),
            proxy_protocol,
        }
    }

    /// Returns the targets that can be selected, with their weights.
    #[must_use]
    pub fn targets(&self) -> BTreeMap<Target, Weight> {
        let weight = |share: &Share| Weight(u16::try_from(share.weight).unwrap_or(u16::MAX));
        self.shares.iter().map(|(target, share)| (*target, weight(share))).collect()
    }

    /// Selects a target for a new connection: the one assigned to the client by session affinity, otherwise
    /// one selected by the policy. Returns `None` if all targets are in `excluded`. `active` returns the
    /// number of connections of a target.
    pub fn pick(
        &mut self,
        client: SocketAddr,
        excluded: &BTreeSet<Target>,
        now: Instant,
        active: impl Fn(&Target) -> u64,
    ) -> Option<Target> {
        let shares = &mut self.shares;
        let usable = |target: &Target| shares.contains_key(target) && !excluded.contains(target);
        let remembered = self.affinity.as_ref().and_then(|affinity| lock(affinity).get(client.ip(), now));
        let chosen = match remembered.filter(usable) {
            Some(target) => target,
            None => match self.policy {
                Policy::RoundRobin => next_in_turn(shares, |target| !excluded.contains(target))?,
                Policy::LeastConnections => {
                    let candidates = shares.keys().filter(|target| !excluded.contains(target));
                    let fewest = candidates.map(&active).min()?;
                    next_in_turn(shares, |target| !excluded.contains(target) && active(target) == fewest)?
                }
                Policy::SourceHash { with_port } => by_source(shares, client, with_port, excluded)?,
            },
        };
        if let Some(affinity) = &self.affinity {
            lock(affinity).put(client.ip(), chosen, now);
        }
        Some(chosen)
    }
}

/// Selects a target by smooth weighted round robin: every candidate gains its weight as credit; the one with
/// the highest credit is selected, and the sum of all weights is subtracted from its credit. In any run of
/// as many selections as the sum of weights, each target is selected exactly according to its weight.
/// Returns `None` without a candidate.
fn next_in_turn(
    shares: &mut BTreeMap<Target, Share>,
    is_candidate: impl Fn(&Target) -> bool,
) -> Option<Target> {
    let mut sum = 0;
    let mut richest: Option<(Target, i64)> = None;
    for (target, share) in shares.iter_mut().filter(|(target, _)| is_candidate(target)) {
        share.credit += share.weight;
        sum += share.weight;
        if richest.is_none_or(|(_, credit)| share.credit > credit) {
            richest = Some((*target, share.credit));
        }
    }
    let (target, _) = richest?;
    if let Some(share) = shares.get_mut(&target) {
        share.credit -= sum;
    }
    Some(target)
}

/// Selects the target of a source by weighted rendezvous hashing: if a target is added or removed, only the
/// sources assigned to that target move. Returns `None` if all targets are in `excluded`.
fn by_source(
    shares: &BTreeMap<Target, Share>,
    client: SocketAddr,
    with_port: bool,
    excluded: &BTreeSet<Target>,
) -> Option<Target> {
    let score = |target: &Target, weight: i64| {
        let mut hasher = DefaultHasher::new();
        (client.ip(), with_port.then(|| client.port()), target).hash(&mut hasher);
        // 32 bits and a weight are exact in a float; adding one half keeps zero out of the logarithm.
        let bits = u32::try_from(hasher.finish() >> 32).unwrap_or(u32::MAX);
        let uniform = (f64::from(bits) + 0.5) / (f64::from(u32::MAX) + 1.0);
        f64::from(i32::try_from(weight).unwrap_or(i32::MAX)) / -uniform.ln()
    };
    shares
        .iter()
        .filter(|(target, _)| !excluded.contains(target))
        .map(|(target, share)| (score(target, share.weight), *target))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, target)| target)
}

/// Session affinity: the target last assigned to each source address, until the timeout.
#[derive(Debug, Default)]
pub struct Affinity {
    timeout: Duration,
    by_source: BTreeMap<IpAddr, (Target, Instant)>,
    by_age: BTreeSet<(Instant, IpAddr)>,
}

fn lock(affinity: &SharedAffinity) -> MutexGuard<'_, Affinity> {
    affinity.lock().expect("the lock is not poisoned")
}

impl Affinity {
    /// Sets the time in seconds after which a source without a new connection is assigned again.
    pub const fn set_timeout(&mut self, seconds: u32) {
        self.timeout = Duration::from_secs(seconds as u64);
    }

    fn timeout_secs(&self) -> u32 {
        u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX)
    }

    fn get(&self, source: IpAddr, now: Instant) -> Option<Target> {
        let (target, seen) = self.by_source.get(&source)?;
        (now.saturating_duration_since(*seen) < self.timeout).then_some(*target)
    }

    fn put(&mut self, source: IpAddr, target: Target, now: Instant) {
        if let Some((_, seen)) = self.by_source.insert(source, (target, now)) {
            self.by_age.remove(&(seen, source));
        }
        self.by_age.insert((now, source));
        while self.by_age.len() > AFFINITY_SOURCES_MAX {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.by_source.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::primitives::quantity::Port;

    use super::*;

    fn target(number: u8) -> Target {
        Target { address: IpAddr::from([10, 0, 0, number]), port: Port::new(80) }
    }

    fn client(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 40_000))
    }

    fn balancer(policy: Policy, weights: &[(u8, u16)], affinity: Option<u32>) -> Balancer {
        let mut balancer = Balancer::new(policy);
        let targets = weights.iter().map(|&(number, weight)| (target(number), Weight(weight))).collect();
        balancer.update(policy, &targets, affinity.map(shared));
        balancer
    }

    fn shared(seconds: u32) -> SharedAffinity {
        let mut affinity = Affinity::default();
        affinity.set_timeout(seconds);
        Arc::new(Mutex::new(affinity))
    }

    fn counts(balancer: &mut Balancer, picks: u32) -> BTreeMap<Target, u32> {
        let now = Instant::now();
        let mut counts = BTreeMap::new();
        for number in 0..picks {
            let target = balancer.pick(client(number), &BTreeSet::new(), now, |_| 0).unwrap();
            *counts.entry(target).or_default() += 1;
        }
        counts
    }

    #[test]
    fn equal_weights_differ_by_at_most_one_and_others_are_exact_over_their_sum() {
        for picks in [1, 2, 3, 7, 100] {
            let mut even = balancer(Policy::RoundRobin, &[(1, 5), (2, 5), (3, 5)], None);
            let counts = counts(&mut even, picks);
            let most = counts.values().max().unwrap();
            let fewest = (1..=3).map(|number| counts.get(&target(number)).copied().unwrap_or(0)).min();
            assert!(most - fewest.unwrap() <= 1, "{counts:?}");
        }
        let mut uneven = balancer(Policy::RoundRobin, &[(1, 3), (2, 1), (3, 0)], None);
        assert_eq!(counts(&mut uneven, 40), BTreeMap::from([(target(1), 30), (target(2), 10)]));
    }

    #[test]
    fn least_connections_takes_the_idle_target_and_turns_among_equals() {
        let mut balancer = balancer(Policy::LeastConnections, &[(1, 1), (2, 1), (3, 1)], None);
        let now = Instant::now();
        let busy = |busy: u8| move |other: &Target| u64::from(*other == target(busy));
        let picks: BTreeSet<_> =
            (0..2).map(|number| balancer.pick(client(number), &BTreeSet::new(), now, busy(2))).collect();
        assert_eq!(picks, BTreeSet::from([Some(target(1)), Some(target(3))]));
    }

    #[test]
    fn a_source_hash_stays_when_others_go_and_follows_weights() {
        let three = [(1, 1), (2, 1), (3, 2)];
        let policy = Policy::SourceHash { with_port: false };
        let mut before = balancer(policy, &three, None);
        let mut after = balancer(policy, &three[..2], None);
        let now = Instant::now();
        let pick = |balancer: &mut Balancer, number| {
            balancer.pick(client(number), &BTreeSet::new(), now, |_| 0).unwrap()
        };
        let mut on_third = 0;
        for number in 0..1000 {
            let had = pick(&mut before, number);
            assert_eq!(had, pick(&mut before, number));
            if had == target(3) { on_third += 1 } else { assert_eq!(had, pick(&mut after, number)) }
        }
        assert!((400..600).contains(&on_third), "{on_third}");
    }

    #[test]
    fn affinity_holds_until_its_time_is_over_and_moves_when_its_target_fails_or_goes() {
        let mut balancer = balancer(Policy::RoundRobin, &[(1, 1), (2, 1)], Some(10));
        let start = Instant::now();
        let mut pick = |seconds: u64, excluded: &[u8]| {
            let excluded = excluded.iter().map(|number| target(*number)).collect();
            balancer.pick(client(1), &excluded, start + Duration::from_secs(seconds), |_| 0)
        };
        assert_eq!(pick(0, &[]), Some(target(1)));
        assert_eq!(pick(9, &[]), Some(target(1)));
        assert_eq!(pick(18, &[]), Some(target(1)), "every connection refreshes the affinity");
        assert_eq!(pick(28, &[]), Some(target(2)), "the time is over");
        assert_eq!(pick(29, &[2]), Some(target(1)), "its target failed");
        assert_eq!(pick(30, &[]), Some(target(1)), "and it stays where it went");
        let affinity = balancer.affinity.clone();
        balancer.update(Policy::RoundRobin, &BTreeMap::from([(target(2), Weight(1))]), affinity);
        let now = start + Duration::from_secs(31);
        assert_eq!(balancer.pick(client(1), &BTreeSet::new(), now, |_| 0), Some(target(2)));
    }

    /// F047: a client that one listener assigned to a target has it at another listener of the Service port.
    #[test]
    fn f047_listeners_of_a_port_share_affinity() {
        let affinity = shared(10);
        let mut listeners = [1, 2].map(|_| balancer(Policy::RoundRobin, &[(1, 1), (2, 1), (3, 1)], None));
        for listener in &mut listeners {
            let targets = listener.targets();
            listener.update(Policy::RoundRobin, &targets, Some(Arc::clone(&affinity)));
        }
        let now = Instant::now();
        let [first, second] = &mut listeners;
        let chosen: Vec<_> =
            (0..6).map(|number| first.pick(client(number), &BTreeSet::new(), now, |_| 0)).collect();
        for (number, chosen) in (0..).zip(chosen).collect::<Vec<_>>().into_iter().rev() {
            assert_eq!(second.pick(client(number), &BTreeSet::new(), now, |_| 0), chosen);
        }
    }

    #[test]
    fn the_oldest_source_is_forgotten_when_the_table_is_full() {
        let mut affinity = Affinity { timeout: Duration::from_secs(100), ..Affinity::default() };
        let now = Instant::now();
        for number in 0..=u32::try_from(AFFINITY_SOURCES_MAX).unwrap() {
            affinity.put(client(number).ip(), target(1), now + Duration::from_micros(u64::from(number)));
        }
        assert_eq!(affinity.by_source.len(), AFFINITY_SOURCES_MAX);
        let later = now + Duration::from_secs(1);
        assert_eq!(affinity.get(client(0).ip(), later), None);
        assert_eq!(affinity.get(client(1).ip(), later), Some(target(1)));
    }
}
