//! Commit of a plan: transactions of limited size, each with all changes of its Services, and bisection to find a
//! rejected Service.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use kernel::{
    netlink::wire::Message,
    nftables::transaction::{self, RejectedTransaction},
};
use model::{kinds::resource::ServiceKey, wire::report::FailureReason};

use super::{
    NftablesBackend,
    element::{FrontendChain, Numbers, SetElement},
    mirror::NftablesMirror,
    plan::{Change, Plan, Structural},
    render::{self, NftCommand},
    schema::{Chain, Pick},
};
use crate::{KernelError, Outcome, Pass};

/// Maximum number of elements in one transaction. The kernel inserts fastest in batches of this size, and
/// holds a lock for each batch.
const ELEMENTS_PER_TRANSACTION: usize = 5000;
/// Maximum number of elements in one transaction when the table is rebuilt. A rebuild of up to this size is one
/// transaction.
const ELEMENTS_PER_REBUILD: usize = 300_000;

/// Changes of one Service, or (`None`) of objects that belong to no Service.
type Group<'a> = (Option<&'a Arc<ServiceKey>>, &'a [Change]);

impl NftablesBackend {
    /// Commits a plan in transactions of limited size. Returns the Services that the kernel rejected. After an
    /// error the kernel state is unknown.
    pub(super) fn commit_plan(
        &mut self,
        plan: &Plan,
        pass: &mut Pass,
    ) -> Result<BTreeMap<Arc<ServiceKey>, Outcome>, KernelError> {
        let mut failed = BTreeMap::new();
        if plan.is_rebuild() {
            tracing::warn!("the table has foreign parts or another layout; rebuilding it");
        }
        let limit = if plan.is_rebuild() { ELEMENTS_PER_REBUILD } else { ELEMENTS_PER_TRANSACTION };
        let groups: Vec<Group<'_>> =
            plan.groups.iter().map(|(service, changes)| (service.as_ref(), changes.as_slice())).collect();
        let mut structure = plan.structure.as_slice();
        let mut rest = groups.as_slice();
        while !structure.is_empty() || !rest.is_empty() {
            let (batch, later) = rest.split_at(batch_length(rest, limit));
            self.commit_batch(structure, batch, &mut failed, pass)?;
            (structure, rest) = (&[], later);
        }
        Ok(failed)
    }

    /// Commits groups of changes (one group per Service) as one transaction. If the kernel rejects it,
    /// bisects the groups until the rejected Service is isolated.
    fn commit_batch(
        &mut self,
        structure: &[Structural],
        groups: &[Group<'_>],
        failed: &mut BTreeMap<Arc<ServiceKey>, Outcome>,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let changes: Vec<Change> = groups.iter().flat_map(|(_, changes)| changes.iter().copied()).collect();
        let Err((refused, what)) = self.transact(structure, &changes, pass)? else { return Ok(()) };
        let refusal = || KernelError { action: format!("committing {what}"), source: refused.to_error() };
        // `NotFound` means that the table or an object in it is missing although the mirror (copy in memory)
        // has it: the mirror is wrong. A rejection of the whole batch, such as for lack of memory or
        // privileges, is not caused by a Service.
        if refused.to_error().kind() == io::ErrorKind::NotFound || refused.message.is_none() {
            return Err(refusal());
        }
        match groups {
            [] => Err(refusal()),
            [(None, _)] if structure.is_empty() => Err(refusal()),
            [(Some(service), _)] if structure.is_empty() => {
                let message = format!("{what}: {}", refused.to_error());
                tracing::warn!(%service, message, "the kernel refused a Service");
                let outcome = Outcome::Failed { reason: FailureReason::KernelRefused, message };
                failed.insert(Arc::clone(service), outcome);
                Ok(())
            }
            groups if !structure.is_empty() => {
                self.commit_batch(structure, &[], failed, pass)?;
                self.commit_batch(&[], groups, failed, pass)
            }
            groups => {
                let (first, second) = groups.split_at(groups.len() / 2);
                self.commit_batch(&[], first, failed, pass)?;
                self.commit_batch(&[], second, failed, pass)
            }
        }
    }

    /// Sends changes as one transaction. If the kernel rejects it, returns a description of the rejected
    /// message.
    fn transact(
        &mut self,
        structure: &[Structural],
        changes: &[Change],
        pass: &mut Pass,
    ) -> Result<Result<(), (RejectedTransaction, String)>, KernelError> {
        let rebuild = structure.contains(&Structural::DeleteTable);
        let mirror = self.mirror.get_or_insert_default();
        let missing = |pick: &Pick| rebuild || !mirror.structure.chains.contains_key(&Chain::Pick(*pick));
        let changes = &without_known_chains(changes, |chain| !rebuild && mirror.chains.contains(chain))[..];
        let chains: BTreeSet<Pick> = render::picks(changes).into_iter().filter(missing).collect();
        let commands = render::commands(structure, &chains, changes, self.options);
        let sent = self.send(&commands);
        let sent = sent.map_err(|source| KernelError {
            action: format!("committing {} nf_tables messages", commands.len()),
            source,
        })?;
        if let Err(refused) = sent {
            let what = refused.message.and_then(|index| commands.get(index)).map_or_else(
                || format!("a transaction of {} messages", commands.len()),
                |command| shorten(command.to_string()),
            );
            return Ok(Err((refused, what)));
        }
        let mirror = self.mirror.get_or_insert_default();
        absorb(mirror, structure, &chains, changes);
        if changes.iter().any(|change| matches!(change, Change::Remove(SetElement::AffinityGroup(..)))) {
            self.forgetting.note();
        }
        self.chains_made.extend(&chains);
        pass.writes += u64::try_from(structure.len() + chains.len() + changes.len()).unwrap_or(u64::MAX);
        Ok(Ok(()))
    }

    /// Sends commands as one transaction and updates the counters.
    pub(super) fn send(&mut self, commands: &[NftCommand]) -> io::Result<Result<(), RejectedTransaction>> {
        let table = self.options.table;
        self.send_messages(&commands.iter().map(|command| command.message(table)).collect::<Vec<_>>())
    }

    /// Sends messages as one transaction and updates the counters.
    pub(super) fn send_messages(
        &mut self,
        messages: &[Message],
    ) -> io::Result<Result<(), RejectedTransaction>> {
        let outcome = transaction::commit(&mut self.netlink, messages)?;
        if outcome.is_ok() && !messages.is_empty() {
            // The kernel increments the generation with every transaction and skips 0.
            self.generation = self.generation.checked_add(1).unwrap_or(1);
            self.counters.transactions += 1;
            self.counters.messages += u64::try_from(messages.len()).unwrap_or(u64::MAX);
            self.counters.bytes += Message::total_bytes(messages);
        }
        Ok(outcome)
    }
}

/// Drops additions of elements that map a dispatch number to its chain if the kernel already has the element,
/// or an earlier change adds it.
fn without_known_chains(
    changes: &[Change],
    is_known: impl Fn(&(Numbers, FrontendChain)) -> bool,
) -> Vec<Change> {
    let mut brought = BTreeSet::new();
    let is_new = |change: &&Change| match change {
        Change::Add(SetElement::Chain(numbers, dispatch)) => {
            let chain = (*numbers, *dispatch);
            !is_known(&chain) && brought.insert(chain)
        }
        Change::Add(_) | Change::Remove(_) => true,
    };
    changes.iter().filter(is_new).copied().collect()
}

/// Returns the number of Services whose changes go into the next transaction: as many as fit into `limit`
/// elements, at least one.
fn batch_length(groups: &[Group<'_>], limit: usize) -> usize {
    let mut elements = 0;
    let fits = |(_, changes): &&Group<'_>| {
        elements += changes.len();
        elements <= limit
    };
    groups.iter().take_while(fits).count().max(1).min(groups.len())
}

fn absorb(
    mirror: &mut NftablesMirror,
    structure: &[Structural],
    chains: &BTreeSet<Pick>,
    changes: &[Change],
) {
    for change in structure {
        match change {
            Structural::DeleteTable => *mirror = NftablesMirror::default(),
            Structural::AddTable => mirror.structure.table = true,
            Structural::AddSet(set) => {
                mirror.structure.sets.insert(*set);
            }
            Structural::AddChain(chain) | Structural::AddRules(chain) => {
                mirror.structure.chains.insert(*chain, true);
            }
            Structural::FlushChain(_) => {}
            Structural::RemoveStray(set, key) => {
                mirror.strays.remove(&(*set, key.clone()));
            }
        }
    }
    mirror.structure.chains.extend(chains.iter().map(|pick| (Chain::Pick(*pick), true)));
    for change in changes {
        match change {
            Change::Add(element) => mirror.insert(element),
            Change::Remove(element) => mirror.remove(element),
        }
    }
}

/// Maximum length in characters of a rejected message in a failure, so that it fits the 1,024 bytes of a
/// message in a report.
const REFUSED_TEXT_MAX: usize = 300;

fn shorten(mut text: String) -> String {
    if let Some((cut, _)) = text.char_indices().nth(REFUSED_TEXT_MAX) {
        text.truncate(cut);
        text.push('…');
    }
    text
}
