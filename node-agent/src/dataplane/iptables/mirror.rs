//! What we last saw in one family's tables or wrote there.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{layout::ChainId, rule};

/// Our chains and rules of one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    /// The chains that hold rules of one Service, or fixed ones, by a digest of their rules.
    pub chains: BTreeMap<ChainId, u64>,
    /// The chains that Services have single lines in.
    pub dispatch: BTreeMap<ChainId, Dispatch>,
    /// Our rules in built-in chains.
    pub jumps: BTreeMap<ChainId, Jumps>,
}

/// A chain that Services have single lines in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// The lines of Services in order, by what they match.
    pub lines: BTreeMap<String, Vec<String>>,
    /// The rules behind them.
    pub tail: Vec<String>,
    /// Whether a line of a Service stands behind a rule of the tail.
    pub is_out_of_order: bool,
}

/// Our rules in one built-in chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jumps {
    /// In order.
    pub rules: Vec<String>,
    /// Whether a foreign rule stands before one of them.
    pub is_behind: bool,
}

impl Dispatch {
    /// Takes over the next rule of the chain.
    pub fn push(&mut self, rule: String, is_tail: bool) {
        if is_tail {
            self.tail.push(rule);
        } else {
            self.is_out_of_order |= !self.tail.is_empty();
            self.lines.entry(rule::key_of(&rule)).or_default().push(rule);
        }
    }
}

impl Mirror {
    /// How many kernel objects these are: chains and rules in chains that we share.
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

    /// A digest of everything.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let Self { chains, dispatch, jumps } = self;
        let mut hasher = DefaultHasher::new();
        chains.hash(&mut hasher);
        for (chain, Dispatch { lines, tail, is_out_of_order }) in dispatch {
            (chain, lines, tail, is_out_of_order).hash(&mut hasher);
        }
        for (chain, Jumps { rules, is_behind }) in jumps {
            (chain, rules, is_behind).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Takes over what another mirror shows of some chains.
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

/// A digest of the rules of a chain; the same in every process.
#[must_use]
pub fn digest(rules: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    rules.hash(&mut hasher);
    hasher.finish()
}
