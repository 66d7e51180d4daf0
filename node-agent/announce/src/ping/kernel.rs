//! Kernel access to the nf_tables table for echo replies. Holds no policy: `plan` computes the changes.

use std::{collections::BTreeSet, io, net::IpAddr};

use kernel::{
    netlink::{
        socket::{Netlink, Protocol},
        wire::ReceivedMessage,
    },
    nftables::{parse::generation as parse_generation, render as request, transaction},
};
use tracing::{debug, warn};

use super::{
    forget,
    parse::{self, Observation},
    plan::{self, Plan, Replies, Table},
    render,
    schema::{Reply, TABLE},
};

/// Maximum number of attempts to read a consistent table.
const READ_ATTEMPTS_MAX: u32 = 8;

/// Netlink socket and the cached content of the echo reply table.
pub(super) struct Kernel {
    netlink: Netlink,
    table: Table,
    /// Ruleset generation at which `table` was read, as counted by the kernel; `None` if `table` may be outdated.
    generation: Option<u32>,
}

impl Kernel {
    /// Opens a socket in the network namespace of the calling thread and reads the table.
    ///
    /// # Errors
    /// Returns an I/O error if the socket cannot be created, or the kernel has no nf_tables support for the
    /// family.
    pub(super) fn open() -> io::Result<Self> {
        let netlink = Netlink::open(Protocol::Netfilter)?;
        let mut kernel = Self { netlink, table: Table::Absent, generation: None };
        kernel.read()?;
        Ok(kernel)
    }

    /// Returns the table as last read or written by this process.
    pub(super) const fn table(&self) -> &Table {
        &self.table
    }

    /// Reads the table again if the ruleset has changed. Returns true if it was read.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        let generation = self.read_generation()?;
        let is_known = self.generation == Some(generation);
        if !is_known {
            self.read()?;
        }
        Ok(!is_known)
    }

    /// Writes the desired replies of the `touched` addresses in one transaction. Returns true if the table
    /// was changed.
    pub(super) fn write(&mut self, wanted: &Replies, touched: &BTreeSet<IpAddr>) -> io::Result<bool> {
        let plan = plan::plan(wanted, &self.table, touched);
        if plan.is_empty() {
            return Ok(false);
        }
        // The generation stays unknown until the commit has succeeded.
        let before = self.generation.take();
        transaction::commit(&mut self.netlink, &render::messages(&plan))?
            .map_err(transaction::RejectedTransaction::to_error)?;
        let answered: BTreeSet<_> =
            plan.added.iter().filter(|(set, _)| set.reply == Reply::Answer).map(|(_, it)| *it).collect();
        let after = self.read_generation()?;
        self.note(plan, wanted);
        // An increase by more than one means that another process has changed the ruleset as well. The next poll
        // then reads the table again.
        self.generation = before.map(|before| before.wrapping_add(1)).filter(|expected| *expected == after);
        match forget::forget(&mut self.netlink, &answered) {
            Ok(0) => {}
            Ok(flows) => debug!(
                flows,
                "restarted the flows of pings that began before their address was \
                                        answered"
            ),
            // The table is correct in spite of this error. The socket is replaced, because it may have unread
            // responses.
            Err(error) => {
                warn!(%error, "cannot delete the flows of earlier pings; a running ping to a newly \
                               announced address stays unanswered");
                self.netlink = Netlink::open(Protocol::Netfilter)?;
            }
        }
        Ok(true)
    }

    /// Updates the cached table after a successful transaction, which the kernel has applied completely.
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

    /// Reads the table. The ruleset generation is read before and after; if they differ, the read is
    /// repeated, up to [`READ_ATTEMPTS_MAX`] times.
    fn read(&mut self) -> io::Result<()> {
        self.generation = None;
        for _ in 0..READ_ATTEMPTS_MAX {
            let before = self.read_generation()?;
            let table = match self.read_once() {
                Ok(table) => table,
                // The table or one of its sets was deleted during the read.
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
        let request = [request::get_table(TABLE)];
        let errnos = self.netlink.ask(&request, |_, answer| observation.table(answer))?;
        match errnos.first().copied().unwrap_or_default() {
            0 => {}
            errno if io::Error::from_raw_os_error(errno).kind() == io::ErrorKind::NotFound => {
                return Ok(Table::Absent);
            }
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let invalid = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
        for payload in self.dump(&request::dump_chains())? {
            observation.chain(&received(&payload)).map_err(invalid)?;
        }
        for payload in self.dump(&request::dump_rules(TABLE, None))? {
            observation.rule(&received(&payload)).map_err(invalid)?;
        }
        for payload in self.dump(&request::dump_sets(TABLE))? {
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

    fn dump(&mut self, request: &kernel::netlink::wire::Message) -> io::Result<Vec<Vec<u8>>> {
        self.netlink.dump(request, Vec::new, |parts, answer| {
            parts.push(answer.payload.to_vec());
            Ok(())
        })
    }

    fn read_generation(&mut self) -> io::Result<u32> {
        let mut generation = None;
        self.netlink.ask(&[request::get_generation()], |_, answer| {
            generation = parse_generation(answer)?;
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

/// Removes the echo reply table in the network namespace of the calling thread. Returns true if it existed.
///
/// # Errors
///
/// Returns an I/O error if the kernel has no nf_tables support or rejects the change.
pub fn cleanup() -> io::Result<bool> {
    Kernel::open()?.write(&Replies::new(), &BTreeSet::new())
}

const fn received(payload: &[u8]) -> ReceivedMessage<'_> {
    ReceivedMessage { kind: 0, flags: 0, sequence: 0, payload }
}
