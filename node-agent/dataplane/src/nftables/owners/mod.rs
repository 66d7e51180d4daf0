//! Table of the two-stage path ([`model::program::survival`]): forwards packets of connections that other nodes
//! translate to these nodes.
//!
//! The table exists only while a frontend is on this path. The kernel is the memory of the former owners of slots: a
//! new process reads them with everything else, and writes nothing if nothing differs.

mod read;
mod schema;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use kernel::{
    netlink::wire::{Attributes, Message},
    nftables::{
        render::{add_table, delete_table, message},
        settle::settle,
        transaction::RejectedTransaction,
        uapi,
    },
    owner_routes::{self, OWNERS_MAX, OwnerNumber, OwnerNumbers},
};
use model::{
    primitives::net::IpFamily,
    program::{Frontend, oracle::Networks},
};

use self::{
    schema::{OwnerChain, OwnerRole, OwnerSet},
    state::{FrontendOwners, OwnerElement},
};
use super::{
    NftablesBackend,
    desired::{self, SlotAssignment},
    element::{Edge, address_bytes},
    plan::edges,
    schema::TABLE,
};
use crate::{KernelError, Pass, claims::TouchedObjects};

/// Maximum number of elements in one message, as in the table of the Services.
const ELEMENTS_PER_MESSAGE: usize = 400;

/// Mirror of the table, and the numbers of the owners.
#[derive(Debug, Default)]
pub(super) struct OwnerTable {
    /// True if the table exists.
    exists: bool,
    /// True if parts of the table differ from the schema, so that it must be rebuilt.
    is_foreign: bool,
    frontends: BTreeMap<Frontend, FrontendOwners>,
    workloads: BTreeSet<Edge>,
    numbers: OwnerNumbers,
}

impl OwnerTable {
    /// Returns the name of the table that belongs to the table of the Services.
    fn name(services: &str) -> String {
        format!("{services}-owners")
    }

    /// Returns the numbers of the owners, with one for each of `hops`; `None` if there are too many.
    fn with_numbers(&self, hops: &BTreeSet<IpAddr>) -> Option<OwnerNumbers> {
        let mut numbers = self.numbers.clone();
        let mut taken: BTreeSet<_> = numbers.values().copied().collect();
        for hop in hops {
            if !numbers.contains_key(hop) {
                let free = (1..=OWNERS_MAX).map(OwnerNumber).find(|number| !taken.contains(number))?;
                taken.insert(free);
                numbers.insert(*hop, free);
            }
        }
        Some(numbers)
    }

    /// Returns the numbers of the owners that slots refer to.
    fn used_numbers(&self) -> OwnerNumbers {
        let slots = self.frontends.values().flat_map(|frontend| &frontend.slots);
        let used: BTreeSet<_> = slots.flat_map(|slot| slot.numbers()).collect();
        self.numbers.iter().filter(|(_, number)| used.contains(number)).map(|(hop, it)| (*hop, *it)).collect()
    }
}

impl NftablesBackend {
    /// Reads the table and the routes to the owners.
    pub(super) fn observe_owners(&mut self) -> Result<(), KernelError> {
        let read = self.read_owners();
        self.owners = read.map_err(|source| KernelError { action: "reading the owners".into(), source })?;
        Ok(())
    }

    /// Updates the two-stage path of the touched frontends; of all frontends with `everything`.
    pub(super) fn follow_owners(
        &mut self,
        touched: &TouchedObjects,
        networks: &Networks,
        everything: bool,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let mut frontends: BTreeSet<Frontend> = touched.frontends.keys().copied().collect();
        if everything {
            frontends.extend(self.owners.frontends.keys());
        }
        let wanted: BTreeMap<Frontend, Option<SlotAssignment>> = frontends
            .into_iter()
            .map(|frontend| {
                let route = self.claims.route(&frontend);
                (frontend, route.and_then(|route| desired::owners(&frontend, route)))
            })
            .filter(|(frontend, wanted)| wanted.is_some() || self.owners.frontends.contains_key(frontend))
            .collect();
        let failed = |action: &str, source| KernelError { action: action.to_owned(), source };
        let hops =
            wanted.values().flatten().flat_map(|(_, owners)| owners.iter().flatten()).copied().collect();
        let Some(numbers) = self.owners.with_numbers(&hops) else {
            let source = io::Error::other(format!("more than {OWNERS_MAX} nodes with endpoints"));
            return Err(failed("numbering the owners", source));
        };
        // A mark without a route would lead to the node itself, so routes precede elements.
        if !numbers.is_empty() {
            let added = owner_routes::ensure(&numbers);
            pass.writes += added.map_err(|source| failed("adding routes to owners", source))?;
        }
        self.owners.numbers = numbers;
        let changed = self.change_owners(wanted, networks);
        pass.writes += changed.map_err(|source| failed("committing the owners", source))?;
        if everything || self.owners.frontends.is_empty() {
            let used = self.owners.used_numbers();
            if self.owners.numbers != used || everything && !used.is_empty() {
                let removed = owner_routes::prune(&used);
                pass.writes += removed.map_err(|source| failed("removing routes to owners", source))?;
                pass.writes += owner_routes::ensure(&used)
                    .map_err(|source| failed("adding routes to owners", source))?;
                self.owners.numbers = used;
            }
        }
        Ok(())
    }

    /// Adds routes that disappeared, as with a link.
    pub(super) fn keep_owner_routes(&mut self) -> Result<(), KernelError> {
        if self.owners.numbers.is_empty() {
            return Ok(());
        }
        let kept = owner_routes::ensure(&self.owners.numbers);
        kept.map_err(|source| KernelError { action: "adding routes to owners".into(), source })?;
        Ok(())
    }

    /// Removes the table and the routes, and returns the number of removed objects.
    pub(super) fn clean_owners(&mut self) -> Result<u64, KernelError> {
        if self.options.table != TABLE {
            return Ok(0);
        }
        let failed = |source| KernelError { action: "removing the owners".into(), source };
        let mut removed = owner_routes::prune(&OwnerNumbers::new()).map_err(failed)?;
        if self.owners.exists {
            self.transact_owners(vec![delete_table(&OwnerTable::name(self.options.table))])
                .map_err(failed)?;
            removed += 1;
        }
        self.owners = OwnerTable::default();
        Ok(removed)
    }

    /// Writes the owners of the slots of frontends; `None` removes a frontend. Returns the number of messages.
    fn change_owners(
        &mut self,
        wanted: BTreeMap<Frontend, Option<SlotAssignment>>,
        networks: &Networks,
    ) -> io::Result<u64> {
        let table = OwnerTable::name(self.options.table);
        let OwnerTable { exists, is_foreign, frontends, workloads, numbers } = &self.owners;
        let assigned = wanted.into_iter().map(|(frontend, owners)| {
            let held = frontends.get(&frontend);
            let owners =
                owners.and_then(|(choice, owners)| FrontendOwners::assigned(held, choice, &owners, numbers));
            (frontend, owners)
        });
        let changed: BTreeMap<Frontend, Option<FrontendOwners>> = assigned.collect();
        let stays = frontends.keys().any(|frontend| !changed.contains_key(frontend));
        if !stays && changed.values().all(Option::is_none) {
            let messages = exists.then(|| delete_table(&table)).into_iter().collect();
            let writes = self.transact_owners(messages)?;
            let numbers = std::mem::take(&mut self.owners.numbers);
            self.owners = OwnerTable { numbers, ..OwnerTable::default() };
            return Ok(writes);
        }
        let is_new = !*exists || *is_foreign;
        let mut messages = Vec::new();
        if is_new {
            messages.extend(exists.then(|| delete_table(&table)));
            messages.extend(creation(&table));
        }
        let should_edges: BTreeSet<_> =
            IpFamily::ALL.into_iter().flat_map(|family| edges(&networks.workloads, family)).collect();
        let nothing = BTreeSet::new();
        messages.extend(replace_edges(&table, if is_new { &nothing } else { workloads }, &should_edges));
        let of = |frontend: &Frontend, owners: Option<&FrontendOwners>| {
            owners.map(|owners| owners.elements(frontend)).unwrap_or_default()
        };
        for (frontend, new) in &changed {
            let is = if is_new { BTreeSet::new() } else { of(frontend, frontends.get(frontend)) };
            let should = of(frontend, new.as_ref());
            messages.extend(element_messages(&table, uapi::NFT_MSG_DELSETELEM, is.difference(&should)));
            messages.extend(element_messages(&table, uapi::NFT_MSG_NEWSETELEM, should.difference(&is)));
        }
        if is_new {
            // The other frontends were in the table that is replaced.
            for (frontend, owners) in frontends.iter().filter(|(frontend, _)| !changed.contains_key(frontend))
            {
                let elements = of(frontend, Some(owners));
                messages.extend(element_messages(&table, uapi::NFT_MSG_NEWSETELEM, elements.iter()));
            }
        }
        let writes = self.transact_owners(messages)?;
        for (frontend, owners) in changed {
            match owners {
                Some(owners) => self.owners.frontends.insert(frontend, owners),
                None => self.owners.frontends.remove(&frontend),
            };
        }
        self.owners.workloads = should_edges;
        (self.owners.exists, self.owners.is_foreign) = (true, false);
        if is_new {
            self.verify_owners()?;
        }
        Ok(writes)
    }

    /// Reads the table back and compares it with the mirror.
    fn verify_owners(&mut self) -> io::Result<()> {
        let is_equal = settle(|| {
            let shown = self.read_owners()?;
            Ok(shown.frontends == self.owners.frontends
                && shown.workloads == self.owners.workloads
                && shown.exists
                && !shown.is_foreign)
        });
        if is_equal? {
            Ok(())
        } else {
            Err(io::Error::other("the kernel returned other owners than were written"))
        }
    }

    /// Sends messages as one transaction, and returns the number of messages.
    fn transact_owners(&mut self, messages: Vec<Message>) -> io::Result<u64> {
        if messages.is_empty() {
            return Ok(0);
        }
        self.send_messages(&messages)?.map_err(RejectedTransaction::to_error)?;
        Ok(u64::try_from(messages.len()).unwrap_or(u64::MAX))
    }
}

/// Returns the messages that create the table with its sets, chains and rules.
fn creation(table: &str) -> Vec<Message> {
    let mut messages = vec![add_table(table)];
    messages.extend(OwnerSet::all().map(|set| set.definition(table)));
    messages.extend(OwnerChain::ALL.map(|chain| chain.definition(table)));
    messages.extend(OwnerChain::ALL.into_iter().flat_map(|chain| chain.rule_messages(table)));
    messages
}

/// Returns the messages that replace the workload networks, if they differ.
fn replace_edges(table: &str, is: &BTreeSet<Edge>, should: &BTreeSet<Edge>) -> Vec<Message> {
    let mut messages = Vec::new();
    for family in IpFamily::ALL {
        let of = |edges: &BTreeSet<Edge>| -> Vec<Edge> {
            edges.iter().filter(|edge| IpFamily::of(edge.address) == family).copied().collect()
        };
        let (is, should) = (of(is), of(should));
        if is == should {
            continue;
        }
        for (kind, edges) in [(uapi::NFT_MSG_DELSETELEM, is), (uapi::NFT_MSG_NEWSETELEM, should)] {
            if !edges.is_empty() {
                let set = OwnerSet { role: OwnerRole::Workloads, family };
                messages.push(list_message(table, kind, set, edges.iter().map(encode_edge)));
            }
        }
    }
    messages
}

fn encode_edge(edge: &Edge) -> Attributes {
    let value = Attributes::default().bytes(uapi::NFTA_DATA_VALUE, &address_bytes(edge.address));
    let key = Attributes::default().nested(uapi::NFTA_SET_ELEM_KEY, &value);
    if edge.is_end { key.be32(uapi::NFTA_SET_ELEM_FLAGS, uapi::NFT_SET_ELEM_INTERVAL_END) } else { key }
}

fn encode(element: &OwnerElement, has_value: bool) -> Attributes {
    let value = |bytes: &[u8]| Attributes::default().bytes(uapi::NFTA_DATA_VALUE, bytes);
    let attributes = Attributes::default().nested(uapi::NFTA_SET_ELEM_KEY, &value(&element.key));
    match element.mark.filter(|_| has_value) {
        Some(mark) => attributes.nested(uapi::NFTA_SET_ELEM_DATA, &value(&mark.to_ne_bytes())),
        None => attributes,
    }
}

/// Returns the messages that add or delete elements, which must be sorted by set.
fn element_messages<'a>(
    table: &str,
    kind: u16,
    elements: impl Iterator<Item = &'a OwnerElement>,
) -> Vec<Message> {
    let mut by_set: BTreeMap<OwnerSet, Vec<&OwnerElement>> = BTreeMap::new();
    elements.for_each(|element| by_set.entry(element.set).or_default().push(element));
    let has_value = kind == uapi::NFT_MSG_NEWSETELEM;
    let mut messages = Vec::new();
    for (set, elements) in by_set {
        for chunk in elements.chunks(ELEMENTS_PER_MESSAGE) {
            let list = chunk.iter().map(|element| encode(element, has_value));
            messages.push(list_message(table, kind, set, list));
        }
    }
    messages
}

fn list_message(
    table: &str,
    kind: u16,
    set: OwnerSet,
    elements: impl Iterator<Item = Attributes>,
) -> Message {
    let list =
        elements.fold(Attributes::default(), |list, element| list.nested(uapi::NFTA_LIST_ELEM, &element));
    let attributes = Attributes::default()
        .text(uapi::NFTA_SET_ELEM_LIST_TABLE, table)
        .text(uapi::NFTA_SET_ELEM_LIST_SET, &set.to_string())
        .nested(uapi::NFTA_SET_ELEM_LIST_ELEMENTS, &list);
    let flags = if kind == uapi::NFT_MSG_NEWSETELEM { uapi::NLM_F_CREATE } else { 0 };
    message(kind, flags, attributes)
}
