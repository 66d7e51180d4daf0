//! Keeper of the table: compares the kernel with the desired content and replaces the table if it differs.

use std::{collections::BTreeSet, io};

use kernel::{
    netlink::{
        socket::{Netlink, Protocol},
        wire::{Message, ReceivedMessage},
    },
    nftables::{parse::generation as parse_generation, render as request, transaction},
};

use super::{
    FilterChain, FilterTable, TABLE,
    parse::{Comparison, elements},
    render,
};

/// Keeper of the table in one network namespace.
#[derive(Default)]
pub struct FilterKeeper {
    /// Socket, which is opened on first use.
    netlink: Option<Netlink>,
    /// Generation of the ruleset at which the table was equal to the content; every change of any table increases it.
    verified: Option<(u32, Option<FilterTable>)>,
    /// True if the table protected the tunnels when it was last written or compared.
    protects_tunnel: bool,
}

impl FilterKeeper {
    /// Reads the table, if the ruleset or the desired content has changed since the last call, and replaces it if it differs.
    /// Returns the number of changes, 0 or 1.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot be read or rejects the change. Without nf_tables, only an absent table is no
    /// error.
    pub fn follow(&mut self, desired: Option<&FilterTable>) -> io::Result<u64> {
        // The socket is dropped after a failure, because responses may still arrive on it.
        let mut netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => Netlink::open(Protocol::Netfilter)?,
        };
        let generation = read_generation(&mut netlink)?;
        let is_known = self
            .verified
            .as_ref()
            .is_some_and(|(held, content)| Some(*held) == generation && content.as_ref() == desired);
        let mut changes = 0;
        if !is_known {
            self.verified = None;
            changes = replace_if_different(&mut netlink, desired)?;
            // A change by another program in the meantime leads to a further comparison.
            let after = if changes == 0 { generation } else { read_generation(&mut netlink)? };
            self.verified = after.map(|after| (after, desired.cloned()));
        }
        self.protects_tunnel = desired.is_some_and(|table| table.chains.contains_key(&FilterChain::Tunnel));
        self.netlink = Some(netlink);
        Ok(changes)
    }

    /// Returns true if the kernel has the table, and the table protected the tunnels when it was last written or
    /// compared. Used after a failure of [`Self::follow`].
    #[must_use]
    pub fn still_protects_tunnel(&self) -> bool {
        self.protects_tunnel && self.is_present()
    }

    /// Returns true if the kernel has the table; false also if it cannot be read.
    #[must_use]
    pub fn is_present(&self) -> bool {
        let found = Netlink::open(Protocol::Netfilter).and_then(|mut netlink| has_table(&mut netlink));
        found.unwrap_or(false)
    }
}

fn replace_if_different(netlink: &mut Netlink, desired: Option<&FilterTable>) -> io::Result<u64> {
    let exists = has_table(netlink)?;
    let is_equal = match desired {
        Some(desired) => exists && is_equal(netlink, desired)?,
        None => !exists,
    };
    if is_equal {
        return Ok(0);
    }
    let messages = render::replace(desired, exists);
    transaction::commit(netlink, &messages)?.map_err(transaction::RejectedTransaction::to_error)?;
    Ok(1)
}

fn has_table(netlink: &mut Netlink) -> io::Result<bool> {
    let errnos = netlink.ask(&[request::get_table(TABLE)], |_, _| Ok(()))?;
    match errnos.first().copied().unwrap_or_default() {
        0 => Ok(true),
        errno if errno == nix::errno::Errno::ENOENT as i32 => Ok(false),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn is_equal(netlink: &mut Netlink, desired: &FilterTable) -> io::Result<bool> {
    let invalid = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
    let mut comparison = Comparison::new(desired);
    for payload in dump(netlink, &request::dump_chains())? {
        comparison.chain(&received(&payload)).map_err(invalid)?;
    }
    for payload in dump(netlink, &request::dump_rules(TABLE, None))? {
        comparison.rule(&received(&payload)).map_err(invalid)?;
    }
    for payload in dump(netlink, &request::dump_sets(TABLE))? {
        comparison.set(&received(&payload)).map_err(invalid)?;
    }
    for set in desired.sets.keys() {
        let mut found = BTreeSet::new();
        let payloads = match dump(netlink, &render::dump_elements(*set)) {
            Ok(payloads) => payloads,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        for payload in payloads {
            elements(&received(&payload), &mut found).map_err(invalid)?;
        }
        comparison.elements(*set, &found);
    }
    Ok(comparison.is_equal())
}

fn dump(netlink: &mut Netlink, request: &Message) -> io::Result<Vec<Vec<u8>>> {
    netlink.dump(request, Vec::new, |parts, answer| {
        parts.push(answer.payload.to_vec());
        Ok(())
    })
}

fn read_generation(netlink: &mut Netlink) -> io::Result<Option<u32>> {
    let mut generation = None;
    netlink.ask(&[request::get_generation()], |_, answer| {
        generation = parse_generation(answer)?;
        Ok(())
    })?;
    Ok(generation)
}

const fn received(payload: &[u8]) -> ReceivedMessage<'_> {
    ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload }
}
