//! Keeper of the table: compares the kernel with the desired elements, writes the differences, and reads them back.

use std::{collections::BTreeMap, io};

use kernel::{
    netlink::{
        socket::{Netlink, Protocol},
        wire::{Message, ReceivedMessage},
    },
    nftables::{parse::generation as parse_generation, render as request, settle::settle, transaction},
};
use model::policy::identity::PolicyNumbers;
use nix::errno::Errno;

use super::{
    desired::{self, PolicyElement, PolicyElements},
    parse::{self, CountedElement, PolicyStructure},
    plan::PolicyPlan,
    render,
    schema::{PolicyMap, TABLE},
};

/// Maximum number of changed elements of a map that are read back by key; with more, the map is read as a whole.
const KEYS_READ_MAX: usize = 500;

/// Keeper of the table in the network namespace in which it is used first.
#[derive(Default)]
pub struct PolicyKeeper {
    /// Socket, which is opened on first use.
    netlink: Option<Netlink>,
    /// Elements in the kernel as last read or written; `None` if they are unknown.
    mirror: Option<PolicyMirror>,
}

/// Content of the table at a generation of the ruleset, which each change of any table increases.
#[derive(Debug)]
struct PolicyMirror {
    generation: u32,
    /// True if the table exists.
    exists: bool,
    elements: PolicyElements,
}

impl PolicyKeeper {
    /// Writes the differences between the kernel and the numbers of a policy, and reads them back. Reads the table before if
    /// any program has changed the ruleset since the last call. Returns the number of changed elements; a table that is
    /// removed, or differs in its chains or maps, counts as one.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read, rejects the changes, or has other elements afterwards. Without nf_tables,
    /// only an absent table is no error.
    pub fn follow(&mut self, numbers: &PolicyNumbers) -> io::Result<u64> {
        // After a failure the socket is dropped, because responses may still arrive on it, and the mirror is unknown.
        let (netlink, mirror) = (self.netlink.take(), self.mirror.take());
        let mut netlink = netlink.map_or_else(|| Netlink::open(Protocol::Netfilter), Ok)?;
        let generation = read_generation(&mut netlink)?;
        let (mut mirror, mut writes) = match mirror.filter(|mirror| mirror.generation == generation) {
            Some(mirror) => (Some(mirror), 0),
            None => (observe(&mut netlink, generation)?, 0),
        };
        let elements = desired::elements(numbers);
        let messages = match &mirror {
            Some(mirror) if elements.is_empty() && mirror.exists => vec![request::delete_table(TABLE)],
            Some(_) if elements.is_empty() => Vec::new(),
            Some(mirror) if mirror.exists => {
                let plan = PolicyPlan::between(&mirror.elements, &elements);
                writes = plan.writes();
                render::changes(&plan)
            }
            Some(_) => render::replace(&elements, false),
            None if elements.is_empty() => vec![request::delete_table(TABLE)],
            None => render::replace(&elements, true),
        };
        if !messages.is_empty() {
            writes = writes.max(1);
            transaction::commit(&mut netlink, &messages)?
                .map_err(transaction::RejectedTransaction::to_error)?;
            let before = mirror.take().filter(|mirror| mirror.exists).map(|mirror| mirror.elements);
            verify(&mut netlink, before.unwrap_or_default(), &elements)?;
            // A change by another program in the meantime leads to a reading at the next call.
            let generation = generation.checked_add(1).unwrap_or(1);
            mirror = Some(PolicyMirror { generation, exists: !elements.is_empty(), elements });
        }
        self.mirror = mirror;
        self.netlink = Some(netlink);
        Ok(writes)
    }

    /// Returns true if another program may have changed the table since the last call of [`Self::follow`], or that call
    /// failed.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    pub fn is_disturbed(&mut self) -> io::Result<bool> {
        let netlink = self.netlink.take();
        let mut netlink = netlink.map_or_else(|| Netlink::open(Protocol::Netfilter), Ok)?;
        let generation = read_generation(&mut netlink)?;
        self.netlink = Some(netlink);
        Ok(self.mirror.as_ref().is_none_or(|mirror| mirror.generation != generation))
    }

    /// Returns the number of dropped packets by the number of the cell that dropped them, since the elements of the cell were
    /// added; `None` if the table is unknown, because the last [`Self::follow`] failed or there was none.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read.
    pub fn drops(&mut self) -> io::Result<Option<BTreeMap<u32, u64>>> {
        let mut drops = BTreeMap::new();
        match &self.mirror {
            None => return Ok(None),
            Some(mirror) if !mirror.exists => return Ok(Some(drops)),
            Some(_) => {}
        }
        let netlink = self.netlink.take();
        let mut netlink = netlink.map_or_else(|| Netlink::open(Protocol::Netfilter), Ok)?;
        for map in PolicyMap::all().filter(|map| map.is_counted()) {
            for CountedElement { element, value, packets } in read_map(&mut netlink, map)? {
                let cell = element.cell().filter(|_| value.is_some_and(|value| value.is_drop()));
                if let Some(cell) = cell {
                    *drops.entry(cell).or_default() += packets;
                }
            }
        }
        self.netlink = Some(netlink);
        Ok(Some(drops))
    }
}

/// Removes the table from the network namespace of the calling thread. Returns true if it existed.
///
/// # Errors
/// Returns an error if the kernel cannot be read or rejects the change.
pub fn cleanup() -> io::Result<bool> {
    Ok(PolicyKeeper::default().follow(&PolicyNumbers::default())? > 0)
}

/// Reads the table. Returns `None` if it exists with other chains, rules or maps than those of this program.
fn observe(netlink: &mut Netlink, generation: u32) -> io::Result<Option<PolicyMirror>> {
    let exists = has_table(netlink)?;
    let mut elements = PolicyElements::new();
    if exists {
        if !has_structure(netlink)? {
            return Ok(None);
        }
        for map in PolicyMap::all() {
            for CountedElement { element, value, .. } in read_map(netlink, map)? {
                let Some(value) = value else { return Ok(None) };
                elements.insert(element, value);
            }
        }
    }
    Ok(Some(PolicyMirror { generation, exists, elements }))
}

/// Compares the written elements with the kernel.
fn verify(netlink: &mut Netlink, before: PolicyElements, desired: &PolicyElements) -> io::Result<()> {
    let differs =
        || io::Error::new(io::ErrorKind::InvalidData, "the kernel does not have the written policy");
    if desired.is_empty() {
        return if has_table(netlink)? { Err(differs()) } else { Ok(()) };
    }
    if before.is_empty() && !has_structure(netlink)? {
        return Err(differs());
    }
    let PolicyPlan { removed, added } = PolicyPlan::between(&before, desired);
    for map in PolicyMap::all() {
        let changed: Vec<_> = removed
            .iter()
            .chain(added.iter().map(|(element, _)| element))
            .filter(|it| it.map == map)
            .collect();
        let is_equal = match changed.len() {
            0 => true,
            length if length > KEYS_READ_MAX || map.has_intervals() => {
                settle(|| is_map(netlink, map, desired))?
            }
            _ => are_elements(netlink, &changed, desired)?,
        };
        if !is_equal {
            return Err(differs());
        }
    }
    Ok(())
}

fn is_map(netlink: &mut Netlink, map: PolicyMap, desired: &PolicyElements) -> io::Result<bool> {
    let mut count = 0;
    for CountedElement { element, value, .. } in read_map(netlink, map)? {
        if value.is_none() || desired.get(&element) != value.as_ref() {
            return Ok(false);
        }
        count += 1;
    }
    Ok(count == desired.keys().filter(|element| element.map == map).count())
}

fn are_elements(
    netlink: &mut Netlink,
    elements: &[&PolicyElement],
    desired: &PolicyElements,
) -> io::Result<bool> {
    let requests: Vec<_> = elements.iter().map(|element| render::get_element(element)).collect();
    let mut found = BTreeMap::new();
    let errnos = netlink.ask(&requests, |index, answer| {
        let Some(asked) = elements.get(index) else { return Ok(()) };
        parse::elements(asked.map, answer, |one| {
            found.insert(one.element, one.value);
        })
    })?;
    if let Some(errno) = errnos.iter().find(|errno| ![0, Errno::ENOENT as i32].contains(*errno)) {
        return Err(io::Error::from_raw_os_error(*errno));
    }
    Ok(elements.iter().all(|element| {
        let value = found.get(*element).and_then(Option::as_ref);
        value == desired.get(*element)
    }))
}

fn has_table(netlink: &mut Netlink) -> io::Result<bool> {
    let errnos = netlink.ask(&[request::get_table(TABLE)], |_, _| Ok(()))?;
    match errnos.first().copied().unwrap_or_default() {
        0 => Ok(true),
        errno if errno == Errno::ENOENT as i32 => Ok(false),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn has_structure(netlink: &mut Netlink) -> io::Result<bool> {
    let mut structure = PolicyStructure::default();
    let invalid = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
    for payload in dump(netlink, &request::dump_chains())? {
        structure.chain(&received(&payload)).map_err(invalid)?;
    }
    for payload in dump(netlink, &request::dump_rules(TABLE, None))? {
        structure.rule(&received(&payload)).map_err(invalid)?;
    }
    for payload in dump(netlink, &request::dump_sets(TABLE))? {
        structure.map(&received(&payload)).map_err(invalid)?;
    }
    Ok(structure.is_complete())
}

fn read_map(netlink: &mut Netlink, map: PolicyMap) -> io::Result<Vec<CountedElement>> {
    netlink.dump(&render::dump_elements(map), Vec::new, |found, answer| {
        parse::elements(map, answer, |element| found.push(element))
    })
}

fn dump(netlink: &mut Netlink, request: &Message) -> io::Result<Vec<Vec<u8>>> {
    netlink.dump(request, Vec::new, |parts, answer| {
        parts.push(answer.payload.to_vec());
        Ok(())
    })
}

fn read_generation(netlink: &mut Netlink) -> io::Result<u32> {
    let mut generation = 0;
    let errnos = netlink.ask(&[request::get_generation()], |_, answer| {
        generation = parse_generation(answer)?.unwrap_or(generation);
        Ok(())
    })?;
    match errnos.first().copied().unwrap_or_default() {
        0 => Ok(generation),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

const fn received(payload: &[u8]) -> ReceivedMessage<'_> {
    ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload }
}
