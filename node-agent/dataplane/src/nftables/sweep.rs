//! Removal of unused pick chains: chains that pick a target for the connections of a frontend.
//!
//! A chain is created for the first frontend with its parameters (number of slots, masquerading, …) and stays
//! when that frontend is removed or changes. Another frontend with the same parameters is likely, and a
//! transaction that creates a chain takes the kernel longer to validate. But if weights change all the time,
//! parameters occur that are never used again. A sweep removes unused chains when the number of chains has
//! reached twice the number in use at the last sweep, plus a reserve. A sweep scans all frontends; because
//! many chains are created before the next one, its cost per created chain is small.

use std::{collections::BTreeSet, io};

use kernel::nftables::transaction::RejectedTransaction;

use super::{
    NftablesBackend,
    element::{FrontendChain, Numbers, SetElement},
    mirror::NftablesMirror,
    render::NftCommand,
    schema::{Chain, Pick},
};

/// Number of unused pick chains that are tolerated, in addition to as many as were in use at the last sweep
/// (removal of unused chains).
const SPARE: usize = 64;
/// Maximum number of chains or dispatch numbers removed in one transaction.
const SWEPT_AT_ONCE: usize = 256;

/// Schedule of the sweeps (removals of unused pick chains), based on the number of chains.
#[derive(Debug, Default)]
pub(super) struct Sweeping {
    /// Number of pick chains in use at the last sweep (removal of unused chains).
    needed: usize,
}

/// Pick chains (which pick a target slot) and dispatch numbers of chains that no frontend uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct UnusedChains {
    numbers: Vec<(Numbers, FrontendChain)>,
    picks: Vec<Pick>,
}

fn picks(mirror: &NftablesMirror) -> impl Iterator<Item = Pick> {
    mirror.structure.chains.keys().filter_map(|chain| match chain {
        Chain::Pick(pick) => Some(*pick),
        Chain::Refuse
        | Chain::Discard
        | Chain::BySource(_)
        | Chain::Checked(_)
        | Chain::Services
        | Chain::Prerouting
        | Chain::Output
        | Chain::Postrouting
        | Chain::Forward
        | Chain::ErrorsInput
        | Chain::ErrorsOutput => None,
    })
}

const fn pick(dispatch: FrontendChain) -> Option<Pick> {
    match dispatch {
        FrontendChain::Forward(pick) => Some(pick),
        FrontendChain::Refuse
        | FrontendChain::Discard
        | FrontendChain::BySource(_)
        | FrontendChain::Checked(_) => None,
    }
}

/// Returns the pick chains (which pick a target slot) and dispatch numbers that no frontend uses, and the
/// count of pick chains in use.
fn unneeded(mirror: &NftablesMirror) -> (UnusedChains, usize) {
    let needed: BTreeSet<(Numbers, FrontendChain)> =
        mirror.frontends.iter().flat_map(|(frontend, held)| held.chains(frontend)).collect();
    let needed_picks: BTreeSet<Pick> = needed.iter().filter_map(|(_, dispatch)| pick(*dispatch)).collect();
    // Fixed chains (which exist without Services) keep their numbers.
    let is_idle = |(numbers, dispatch): &&(Numbers, FrontendChain)| {
        pick(*dispatch).is_some() && !needed.contains(&(*numbers, *dispatch))
    };
    let numbers = mirror.chains.iter().filter(is_idle).copied().collect();
    let idle = picks(mirror).filter(|pick| !needed_picks.contains(pick)).collect();
    (UnusedChains { numbers, picks: idle }, needed_picks.len())
}

impl NftablesBackend {
    /// Removes unused pick chains (which pick a target slot) if the number of chains exceeds the limit.
    pub(super) fn sweep(&mut self) -> io::Result<()> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        if mirror.structure.foreign || mirror.structure.chains.len() < 2 * self.sweeping.needed + SPARE {
            return Ok(());
        }
        let (UnusedChains { numbers, picks }, needed) = unneeded(mirror);
        // References are removed first, so that every transaction leaves a consistent table.
        for numbers in numbers.chunks(SWEPT_AT_ONCE) {
            let delete = |&(set, dispatch): &(Numbers, FrontendChain)| {
                NftCommand::DeleteElements(set.set(), vec![SetElement::Chain(set, dispatch)])
            };
            self.remove(&numbers.iter().map(delete).collect::<Vec<_>>())?;
            if let Some(mirror) = &mut self.mirror {
                for chain in numbers {
                    mirror.chains.remove(chain);
                }
            }
        }
        for picks in picks.chunks(SWEPT_AT_ONCE) {
            let chains = || picks.iter().map(|pick| Chain::Pick(*pick));
            self.remove(&chains().map(NftCommand::DeleteChain).collect::<Vec<_>>())?;
            if let Some(mirror) = &mut self.mirror {
                for chain in chains() {
                    mirror.structure.chains.remove(&chain);
                }
            }
        }
        tracing::debug!(chains = picks.len(), needed, "removed unused chains");
        self.sweeping.needed = needed;
        Ok(())
    }

    /// Removes unused chains: sends `commands` as one transaction. If the kernel rejects the transaction, the
    /// mirror (copy of the table in memory) must be wrong and is dropped.
    fn remove(&mut self, commands: &[NftCommand]) -> io::Result<()> {
        let outcome = self.send(commands)?.map_err(RejectedTransaction::to_error);
        if outcome.is_err() {
            self.mirror = None;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use model::{
        kinds::service::Protocol,
        primitives::quantity::Port,
        program::{Destination, Frontend},
    };

    use super::*;

    #[test]
    fn what_a_frontend_of_another_family_needs_stays_and_so_do_chains_that_are_always_there() {
        let frontend = |address: &str| Frontend {
            destination: Destination::Address(address.parse().unwrap()),
            protocol: Protocol::Tcp,
            ports: Port::new(80).unwrap().into(),
        };
        let [v4, v6] = [frontend("10.96.0.1"), frontend("2001:db8::1")];
        let pick = |slots| Pick::parse(&format!("cluster-{slots}")).unwrap();
        let [v4_numbers, v6_numbers] = [v4, v6].map(|frontend| Numbers::of(&frontend, false));
        let mut mirror = NftablesMirror::default();
        for chain in Chain::FIXED.into_iter().chain([1, 2, 3].map(|slots| Chain::Pick(pick(slots)))) {
            mirror.structure.chains.insert(chain, true);
        }
        for (numbers, dispatch) in [
            (v4_numbers, FrontendChain::Refuse),
            (v4_numbers, FrontendChain::Forward(pick(1))),
            (v4_numbers, FrontendChain::Forward(pick(2))),
            (v6_numbers, FrontendChain::Forward(pick(2))),
        ] {
            mirror.insert(&SetElement::Chain(numbers, dispatch));
        }
        mirror.insert(&SetElement::Dispatch(v6, FrontendChain::Forward(pick(2))));
        let (found, needed) = unneeded(&mirror);
        let numbers = [1, 2].map(|slots| (v4_numbers, FrontendChain::Forward(pick(slots)))).to_vec();
        assert_eq!((found, needed), (UnusedChains { numbers, picks: vec![pick(1), pick(3)] }, 1));
    }
}
