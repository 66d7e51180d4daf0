//! Mirror of the agent's chains and rules in one address family, as last read or written.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{layout::ChainId, rule};

/// Mirror (copy in memory) of the agent's chains and rules in one address family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IptablesMirror {
    /// Chains that belong to exactly one Service, and chains that exist without Services (fixed chains), each
    /// with a digest of its rules.
    pub chains: BTreeMap<ChainId, u64>,
    /// Shared chains, which contain rules of several Services.
    pub dispatch: BTreeMap<ChainId, SharedChain>,
    /// Rules of the agent in each built-in chain, such as PREROUTING.
    pub jumps: BTreeMap<ChainId, Jumps>,
}

/// Shared chain, to which each Service adds single rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedChain {
    /// Rules of Services, by their match criteria, each group in listing order.
    pub lines: BTreeMap<String, Vec<String>>,
    /// Fixed rules that must follow the rules of all Services.
    pub tail: Vec<String>,
    /// True if a rule of a Service follows a rule in `tail`; the rules in `tail` must then be appended again.
    pub is_out_of_order: bool,
}

/// Rules of the agent in one built-in chain, such as jumps to its own chains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jumps {
    /// Rules of the agent in this chain, in listing order.
    pub rules: Vec<String>,
    /// True if a rule of another program precedes one of the agent; in the table `nat`, only if it can decide on the translation of
    /// a connection.
    pub is_behind: bool,
}

impl SharedChain {
    /// Appends the next rule of the chain. `is_tail` is true for a fixed rule that must follow the rules of
    /// Services.
    pub fn push(&mut self, rule: String, is_tail: bool) {
        if is_tail {
            self.tail.push(rule);
        } else {
            self.is_out_of_order |= !self.tail.is_empty();
            self.lines.entry(rule::key_of(&rule)).or_default().push(rule);
        }
    }
}

impl IptablesMirror {
    /// Returns the number of the agent's kernel objects: chains, and rules in shared chains.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let lines: usize = self
            .dispatch
            .values()
            .map(|chain| 1 + chain.tail.len() + chain.lines.values().map(Vec::len).sum::<usize>())
            .sum();
        let jumps: usize = self.jumps.values().map(|jumps| jumps.rules.len()).sum();
        u64::try_from(self.chains.len() + lines + jumps).unwrap_or(u64::MAX)
    }

    /// Returns a digest of all chains and rules in memory. Equal contents have equal digests.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let Self { chains, dispatch, jumps } = self;
        let mut hasher = DefaultHasher::new();
        chains.hash(&mut hasher);
        for (chain, SharedChain { lines, tail, is_out_of_order }) in dispatch {
            (chain, lines, tail, is_out_of_order).hash(&mut hasher);
        }
        for (chain, Jumps { rules, is_behind }) in jumps {
            (chain, rules, is_behind).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Replaces the chains in `chains` by their contents in `seen`, a mirror that was just read from the
    /// kernel.
    pub fn refresh(&mut self, chains: &BTreeSet<ChainId>, seen: &Self) {
        for chain in chains {
            match seen.chains.get(chain) {
                Some(digest) => drop(self.chains.insert(chain.clone(), *digest)),
                None => drop(self.chains.remove(chain)),
            }
            match seen.dispatch.get(chain) {
                Some(held) => drop(self.dispatch.insert(chain.clone(), held.clone())),
                None => drop(self.dispatch.remove(chain)),
            }
        }
    }
}

/// Returns a digest of the rules of a chain. The same rules yield the same digest in every process.
#[must_use]
pub fn digest(rules: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    rules.hash(&mut hasher);
    hasher.finish()
}
