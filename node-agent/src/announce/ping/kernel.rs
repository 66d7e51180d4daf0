//! Reads and writes the table. Nothing is decided here.

use std::{collections::BTreeSet, io, net::IpAddr};

use tracing::{debug, warn};

use super::{
    forget,
    parse::{self, Observation},
    plan::{self, Plan, Replies, Table},
    render,
    schema::{Reply, TABLE},
};
use crate::{
    dataplane::nftables::{self, kernel},
    netlink::{
        socket::{Netlink, Protocol},
        wire::Received,
    },
};

/// Attempts at an undisturbed look at the table.
const READ_ATTEMPTS_MAX: u32 = 8;

/// The table in the kernel, and what is known of it.
pub(super) struct Kernel {
    netlink: Netlink,
    table: Table,
    /// The generation of the ruleset that `table` shows; `None` when it may be otherwise.
    generation: Option<u32>,
}

impl Kernel {
    /// Opens a socket in the network namespace of the calling thread, and reads.
    ///
    /// # Errors
    /// When the kernel gives no socket, or has no nf_tables of this family.
    pub(super) fn open() -> io::Result<Self> {
        let netlink = Netlink::open(Protocol::Netfilter)?;
        let mut kernel = Self { netlink, table: Table::Absent, generation: None };
        kernel.read()?;
        Ok(kernel)
    }

    /// The table as it was last seen.
    pub(super) const fn table(&self) -> &Table {
        &self.table
    }

    /// Reads the table anew if anybody may have changed it; answers whether it did.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        let generation = self.read_generation()?;
        let is_known = self.generation == Some(generation);
        if !is_known {
            self.read()?;
        }
        Ok(!is_known)
    }

    /// Makes the table so that it holds what is wanted about these addresses. Answers whether something was written.
    pub(super) fn write(&mut self, wanted: &Replies, touched: &BTreeSet<IpAddr>) -> io::Result<bool> {
        let plan = plan::plan(wanted, &self.table, touched);
        if plan.is_empty() {
            return Ok(false);
        }
        // Until it is known what came of it.
        let before = self.generation.take();
        kernel::commit(&mut self.netlink, &render::messages(&plan))?.map_err(kernel::Refused::to_error)?;
        let answered: BTreeSet<_> =
            plan.added.iter().filter(|(set, _)| set.reply == Reply::Answer).map(|(_, it)| *it).collect();
        let after = self.read_generation()?;
        self.note(plan, wanted);
        // Otherwise somebody else has written, too, and the next look reads.
        self.generation = before.map(|before| before.wrapping_add(1)).filter(|expected| *expected == after);
        match forget::forget(&mut self.netlink, &answered) {
            Ok(0) => {}
            Ok(flows) => debug!(flows, "pings that began before their address was answered begin anew"),
            // The table is as it should be all the same; a socket in the middle of an answer is not used again.
            Err(error) => {
                warn!(%error, "a ping that began before its address was answered stays unanswered while it goes on");
                self.netlink = Netlink::open(Protocol::Netfilter)?;
            }
        }
        Ok(true)
    }

    /// A transaction that was not refused has been carried out whole.
    fn note(&mut self, plan: Plan, wanted: &Replies) {
        let Plan { delete_table, make_table, removed, added } = plan;
        if make_table {
            self.table = Table::Present(wanted.clone());
        } else if delete_table {
            self.table = Table::Absent;
        } else if let Table::Present(present) = &mut self.table {
            for (_, address) in removed {
                present.remove(&address);
            }
            present.extend(added.into_iter().map(|(set, address)| (address, set.reply)));
        }
    }

    /// Reads the table between two equal generations.
    fn read(&mut self) -> io::Result<()> {
        self.generation = None;
        for _ in 0..READ_ATTEMPTS_MAX {
            let before = self.read_generation()?;
            let table = match self.read_once() {
                Ok(table) => table,
                // The table, or a set of it, went while we read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if self.read_generation()? == before {
                (self.table, self.generation) = (table, Some(before));
                return Ok(());
            }
        }
        let message = "the ruleset changed during every attempt to read it";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
    }

    fn read_once(&mut self) -> io::Result<Table> {
        let mut observation = Observation::default();
        let request = [nftables::render::get_table(TABLE)];
        let errnos = self.netlink.ask(&request, |_, answer| observation.table(answer))?;
        match errnos.first().copied().unwrap_or_default() {
            0 => {}
            errno if io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::NotFound => {
                return Ok(Table::Absent);
            }
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let invalid = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
        for payload in self.dump(&nftables::render::dump_chains())? {
            observation.chain(&received(&payload)).map_err(invalid)?;
        }
        for payload in self.dump(&nftables::render::dump_rules(TABLE, None))? {
            observation.rule(&received(&payload)).map_err(invalid)?;
        }
        for payload in self.dump(&nftables::render::dump_sets(TABLE))? {
            observation.set(&received(&payload)).map_err(invalid)?;
        }
        for set in observation.sets() {
            let mut addresses = Vec::new();
            for payload in self.dump(&render::dump_elements(set))? {
                parse::addresses(&received(&payload), &mut addresses).map_err(invalid)?;
            }
            observation.elements(set, &addresses);
        }
        Ok(observation.finish())
    }

    fn dump(&mut self, request: &crate::netlink::wire::Message) -> io::Result<Vec<Vec<u8>>> {
        self.netlink.dump(request, Vec::new, |parts, answer| {
            parts.push(answer.payload.to_vec());
            Ok(())
        })
    }

    fn read_generation(&mut self) -> io::Result<u32> {
        let mut generation = None;
        self.netlink.ask(&[nftables::render::get_generation()], |_, answer| {
            generation = nftables::parse::generation(answer)?;
            Ok(())
        })?;
        generation.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the response contains no \
                                                                             generation",
            )
        })
    }
}

/// Removes the table, in the network namespace of the calling thread. Answers whether there was one.
///
/// # Errors
/// When the kernel has no nf_tables, or refuses.
pub fn cleanup() -> io::Result<bool> {
    Kernel::open()?.write(&Replies::new(), &BTreeSet::new())
}

const fn received(payload: &[u8]) -> Received<'_> {
    Received { kind: 0, flags: 0, sequence: 0, payload }
}
