//! Order in which the upstream servers of a zone are asked. Pure, apart from the random numbers of the caller.

use std::time::Duration;

use fastrand::Rng;

use crate::args::UpstreamPolicy;

/// Part of the questions that a random server gets first with the policy `fastest`, so that its response time stays known:
/// one of this number.
const MEASUREMENT_PART: usize = 20;

/// Properties of a server that decide on its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerRank {
    /// Place of the server in the setting.
    pub(super) index: usize,
    /// True if the server did not respond shortly before. Such servers are asked last.
    pub(super) is_avoided: bool,
    /// Moving average of the response times. `None` before the first response.
    pub(super) response_time: Option<Duration>,
}

/// Returns the places of servers, given in the order of the setting, in the order in which they are asked.
pub(super) fn order(policy: UpstreamPolicy, mut servers: Vec<ServerRank>, random: &mut Rng) -> Vec<usize> {
    match policy {
        UpstreamPolicy::Sequential => {}
        UpstreamPolicy::Random => random.shuffle(&mut servers),
        UpstreamPolicy::Fastest => {
            // A server without a response time is first, because nothing is known of it.
            servers.sort_by_key(|server| server.response_time);
            if servers.len() > 1 && random.usize(..MEASUREMENT_PART) == 0 {
                let measured = random.usize(1..servers.len());
                servers.swap(0, measured);
            }
        }
    }
    servers.sort_by_key(|server| server.is_avoided);
    servers.into_iter().map(|server| server.index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(index: usize, millis: u64) -> ServerRank {
        let response_time = (millis > 0).then(|| Duration::from_millis(millis));
        ServerRank { index, is_avoided: false, response_time }
    }

    /// Returns the number of 1,000 questions that each of three servers gets first.
    fn firsts(policy: UpstreamPolicy, servers: &[ServerRank]) -> [usize; 3] {
        let mut random = Rng::with_seed(7);
        let mut firsts = [0; 3];
        for _ in 0..1000 {
            let order = order(policy, servers.to_vec(), &mut random);
            assert_eq!(order.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "each server once");
            firsts[order[0]] += 1;
        }
        firsts
    }

    #[test]
    fn each_policy_has_its_order() {
        let servers = [rank(0, 30), rank(1, 10), rank(2, 20)];
        assert_eq!(firsts(UpstreamPolicy::Sequential, &servers), [1000, 0, 0]);
        let random = firsts(UpstreamPolicy::Random, &servers);
        assert!(random.iter().all(|count| (250..420).contains(count)), "{random:?}");
        let fastest = firsts(UpstreamPolicy::Fastest, &servers);
        assert!(fastest[1] >= 920 && fastest[0] >= 10 && fastest[2] >= 10, "{fastest:?}");
    }

    /// A server that has not been asked is measured first, and one that did not respond is last.
    #[test]
    fn unknown_servers_are_first_and_failed_ones_last() {
        let servers = [rank(0, 30), rank(1, 10), rank(2, 0)];
        assert!(firsts(UpstreamPolicy::Fastest, &servers)[2] >= 920);
        let failed = ServerRank { is_avoided: true, ..servers[1] };
        for policy in [UpstreamPolicy::Sequential, UpstreamPolicy::Random, UpstreamPolicy::Fastest] {
            let order = order(policy, vec![servers[0], failed, servers[2]], &mut Rng::with_seed(1));
            assert_eq!(order[2], 1, "{policy:?}");
        }
    }
}
