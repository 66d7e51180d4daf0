//! Execution of a plan of the ipvs backend: sends its commands to the kernel and updates the mirror (copy in
//! memory).

use std::{io, net::IpAddr, sync::Arc};

use kernel::netlink::wire::Message;
use model::{kinds::resource::ServiceKey, primitives::net::IpFamily, wire::report::FailureReason};
use nix::errno::Errno;

use super::{
    IpvsBackend,
    desired::Owner,
    ipset, link,
    mirror::DummyLink,
    plan::{self, Plan},
    render::IpvsCommand,
    rules,
    server::Socket,
    sets::{self, IpsetElement, Set, SetKind},
    sysctls, uapi,
};
use crate::{KernelError, Outcome, Pass, RejectedServices};

impl IpvsBackend {
    /// Creates missing objects that do not depend on Services: the sets, the dummy link and the rules. With
    /// `everything`, also sets the sysctls.
    pub(super) fn ensure_structure(&mut self, everything: bool, pass: &mut Pass) -> Result<(), KernelError> {
        let naming = self.options.naming;
        let mirror = self.mirror.get_or_insert_default();
        let missing: Vec<_> = Set::all().filter(|set| !mirror.sets.contains_key(set)).collect();
        let creations: Vec<_> = missing.iter().map(|set| ipset::create(*set, naming)).collect();
        let errnos = self.netfilter.ask(&creations, |_, _| Ok(())).map_err(failed("making sets"))?;
        self.count_messages(&creations);
        for (set, errno) in missing.iter().zip(errnos) {
            if errno != 0 {
                return Err(failed(format!("making set {}", set.name(naming)))(refusal(errno)));
            }
            self.mirror.get_or_insert_default().sets.insert(*set, 0);
            pass.writes += 1;
        }
        if everything {
            self.set_sysctls(pass)?;
        }
        self.ensure_link(pass).map_err(failed("making the link"))?;
        for family in IpFamily::ALL {
            let mirror = self.mirror.get_or_insert_default();
            if mirror.rules.get(&family) != Some(&true) {
                self.write_rules(family, rules::restore).map_err(failed("writing rules"))?;
                pass.writes += 1;
                self.mirror.get_or_insert_default().rules.insert(family, true);
            }
        }
        Ok(())
    }

    /// Runs `iptables-restore` for each table of an address family, with the input that `script` builds from
    /// the current listing of the table.
    pub(super) fn write_rules(
        &mut self,
        family: IpFamily,
        script: impl Fn(&str, &rules::SavedTable) -> String,
    ) -> io::Result<()> {
        for table in rules::tables(family, self.rule_options()) {
            let listing = self.iptables.list(family, table.name)?;
            let script = script(&listing, &table);
            self.iptables.restore(family, &script)?;
            self.count(script.lines().count(), u64::try_from(script.len()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn set_sysctls(&mut self, pass: &mut Pass) -> Result<(), KernelError> {
        let wanted = sysctls::wanted(self.options.strict_arp);
        let mirror = self.mirror.get_or_insert_default();
        let superfluous: Vec<_> = mirror
            .elements
            .iter()
            .filter(|element| sysctls::is_superfluous(element, &wanted))
            .copied()
            .collect();
        for element in superfluous {
            sysctls::restore(&element).map_err(failed("putting back a sysctl"))?;
            self.change_elements(&[(None, element)], false, &mut RejectedServices::new(), pass)?;
            self.former_sysctls.remove(&element);
        }
        // The former sysctl values stay recorded even if another program flushes the set.
        let mirror = self.mirror.get_or_insert_default();
        let forgotten: Vec<_> = self.former_sysctls.difference(&mirror.elements).copied().collect();
        let forgotten: Vec<_> = forgotten.into_iter().map(|element| (None, element)).collect();
        self.change_elements(&forgotten, true, &mut RejectedServices::new(), pass)?;
        for sysctl in wanted.into_iter().filter(|sysctl| !sysctl.is_set()) {
            let mirror = self.mirror.get_or_insert_default();
            let former = sysctl.former(|element| mirror.elements.contains(element));
            if let Some(element) = former.map_err(failed("reading a sysctl"))? {
                self.change_elements(&[(None, element)], true, &mut RejectedServices::new(), pass)?;
            }
            sysctl.set().map_err(failed("setting a sysctl"))?;
            pass.writes += 1;
        }
        let mirror = self.mirror.get_or_insert_default();
        let remembered = mirror.elements.iter().filter(|element| element.set.kind == SetKind::Sysctls);
        self.former_sysctls = remembered.copied().collect();
        Ok(())
    }

    fn ensure_link(&mut self, pass: &mut Pass) -> io::Result<()> {
        let name = sets::link(self.options.naming);
        let mirror = self.mirror.get_or_insert_default();
        let messages = match &mirror.link {
            Some(link) if link.is_up => return Ok(()),
            Some(link) => [link::set_up(link.index)],
            None => [link::add(name)],
        };
        check(self.route.ask(&messages, |_, _| Ok(()))?)?;
        self.count_messages(&messages);
        pass.writes += 1;
        let mut found = None;
        check(self.route.ask(&[link::get(name)], |_, answer| {
            found = Some(link::index(answer)?);
            Ok(())
        })?)?;
        let (index, is_up) = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let link = &mut self.mirror.get_or_insert_default().link;
        let addresses = link.take().map(|link| link.addresses).unwrap_or_default();
        *link = Some(DummyLink { index, is_up, addresses });
        Ok(())
    }

    /// Commits a plan. Returns the Services that the kernel rejected. After an error the kernel state is
    /// unknown.
    pub(super) fn commit(&mut self, plan: &Plan, pass: &mut Pass) -> Result<RejectedServices, KernelError> {
        let mut refused = RejectedServices::new();
        for (service, socket) in &plan.foreign {
            refused.insert(Arc::clone(service), foreign(socket));
        }
        self.change_elements(&plan.additions, true, &mut refused, pass)?;
        let addresses: Vec<_> = plan.addresses_added.iter().map(|(_, address)| *address).collect();
        self.change_addresses(&addresses, true, pass).map_err(failed("adding addresses"))?;
        self.change_servers(&plan.commands, &mut refused, pass)?;
        self.change_elements(&plan.removals, false, &mut refused, pass)?;
        self.verify(plan, &mut refused)?;
        Ok(refused)
    }

    pub(super) fn change_elements(
        &mut self,
        elements: &[(Owner, IpsetElement)],
        is_addition: bool,
        refused: &mut RejectedServices,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let naming = self.options.naming;
        let message = |element| {
            if is_addition { ipset::add(element, naming) } else { ipset::remove(element, naming) }
        };
        let messages: Vec<_> = elements.iter().map(|(_, element)| message(element)).collect();
        let errnos = self.netfilter.ask(&messages, |_, _| Ok(())).map_err(failed("changing sets"))?;
        self.count_messages(&messages);
        let mirror = self.mirror.get_or_insert_default();
        for ((owner, element), errno) in elements.iter().zip(errnos) {
            let name = element.set.name(naming);
            match (errno, owner) {
                (0, _) if is_addition => {
                    mirror.elements.insert(*element);
                    pass.writes += 1;
                }
                (0, _) => {
                    mirror.elements.remove(element);
                    pass.writes += 1;
                }
                (uapi::IPSET_ERR_HASH_FULL, Some(owner)) => {
                    refuse(refused, owner, FailureReason::KernelRefused, format!("set {name} is full"));
                }
                (errno, Some(owner)) if is_addition && errno != Errno::ENOENT as i32 => {
                    let message = format!("adding to set {name}: {}", refusal(errno));
                    refuse(refused, owner, FailureReason::KernelRefused, message);
                }
                (errno, _) => return Err(failed(format!("changing set {name}"))(refusal(errno))),
            }
        }
        Ok(())
    }

    pub(super) fn change_addresses(
        &mut self,
        addresses: &[IpAddr],
        is_addition: bool,
        pass: &mut Pass,
    ) -> io::Result<()> {
        let Some(link) = self.mirror.as_mut().and_then(|mirror| mirror.link.as_mut()) else { return Ok(()) };
        let message = |address: &IpAddr| -> Message {
            let change = if is_addition { link::add_address } else { link::remove_address };
            change(link.index, *address)
        };
        let messages: Vec<_> = addresses.iter().map(message).collect();
        let errnos = self.route.ask(&messages, |_, _| Ok(()))?;
        for (address, errno) in addresses.iter().zip(errnos) {
            let is_done = [0, Errno::EEXIST as i32, Errno::EADDRNOTAVAIL as i32].contains(&errno);
            if !is_done {
                return Err(refusal(errno));
            }
            pass.writes += 1;
            if is_addition {
                link.addresses.insert(*address);
            } else {
                link.addresses.remove(address);
            }
        }
        self.count_messages(&messages);
        Ok(())
    }

    pub(super) fn change_servers(
        &mut self,
        commands: &[(Owner, IpvsCommand)],
        refused: &mut RejectedServices,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let messages: Vec<_> = commands.iter().map(|(_, command)| command.message(self.family)).collect();
        let errnos = self.generic.ask(&messages, |_, _| Ok(()));
        let errnos = errnos.map_err(failed("changing virtual servers"))?;
        self.count_messages(&messages);
        let mirror = self.mirror.get_or_insert_default();
        for ((owner, command), errno) in commands.iter().zip(errnos) {
            if errno == 0 {
                mirror.absorb(command);
                pass.writes += 1;
                continue;
            }
            let Some(owner) = owner else {
                return Err(failed(command.to_string())(refusal(errno)));
            };
            let (reason, message) = explain(command, errno);
            // Errors that follow from a rejected virtual server are not reported again.
            if refuse(refused, owner, reason, message) && errno == Errno::ESRCH as i32 {
                return Err(failed(command.to_string())(refusal(errno)));
            }
            if let (IpvsCommand::AddServer(socket, _), true) = (command, errno == Errno::EEXIST as i32) {
                mirror.foreign.insert(*socket);
            }
        }
        Ok(())
    }

    /// Removes addresses that no Service needs any more from the dummy link.
    pub(super) fn release_addresses(
        &mut self,
        addresses: impl Iterator<Item = IpAddr>,
        pass: &mut Pass,
    ) -> Result<(), KernelError> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let idle: Vec<_> = plan::idle_addresses(mirror, &self.wants, addresses).into_iter().collect();
        self.change_addresses(&idle, false, pass).map_err(failed("removing addresses"))
    }

    fn count_messages(&mut self, messages: &[Message]) {
        self.count(messages.len(), Message::total_bytes(messages));
    }

    fn count(&mut self, messages: usize, bytes: u64) {
        if messages > 0 {
            self.counters.transactions += 1;
            self.counters.messages += u64::try_from(messages).unwrap_or(u64::MAX);
            self.counters.bytes += bytes;
        }
    }
}

/// Records a Service that the kernel rejected. Returns true if this is the first failure of the Service in
/// the pass.
pub(super) fn refuse(
    refused: &mut RejectedServices,
    owner: &Arc<ServiceKey>,
    reason: FailureReason,
    message: String,
) -> bool {
    let is_first = !refused.contains_key(owner);
    if is_first {
        tracing::warn!(service = %owner, message, "the kernel refused a Service");
        refused.insert(Arc::clone(owner), Outcome::Failed { reason, message });
    }
    is_first
}

fn explain(command: &IpvsCommand, errno: i32) -> (FailureReason, String) {
    let is_missing = errno == Errno::ENOENT as i32;
    if let (IpvsCommand::AddServer(_, service) | IpvsCommand::EditServer(_, service), true) =
        (command, is_missing)
    {
        let scheduler = &service.scheduler;
        let remedy = format!("this kernel has no scheduler {scheduler}; try modprobe ip_vs_{scheduler}");
        return (FailureReason::Unsupported, remedy);
    }
    if let (IpvsCommand::AddServer(socket, _), true) = (command, errno == Errno::EEXIST as i32) {
        return (FailureReason::KernelRefused, taken(socket));
    }
    (FailureReason::KernelRefused, format!("{command}: {}", refusal(errno)))
}

fn foreign(socket: &Socket) -> Outcome {
    Outcome::Failed { reason: FailureReason::KernelRefused, message: taken(socket) }
}

fn taken(socket: &Socket) -> String {
    format!("{socket} is already a virtual server of somebody else")
}

fn refusal(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn check(errnos: Vec<i32>) -> io::Result<()> {
    errnos.into_iter().find(|errno| *errno != 0).map_or(Ok(()), |errno| Err(refusal(errno)))
}

pub(super) fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> KernelError {
    let action = action.into();
    move |source| KernelError { action, source }
}
