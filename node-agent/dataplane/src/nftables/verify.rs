//! Read-back of writes: the changed keys after a small change, everything after an update of all Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use kernel::nftables::{
    render::dump_rules,
    settle::{LOOKS_MAX, RESIZE_PAUSE},
};
use model::{kinds::resource::ServiceKey, wire::report::FailureReason};

use super::{
    NftablesBackend,
    element::SetElement,
    parse::{self, Observation},
    plan::{Change, Plan},
    render,
    schema::{Chain, SetId},
};
use crate::{Dataplane, DesiredState, KernelError, Outcome, RejectedServices, claims::TouchedObjects};

/// Maximum number of keys in one request, whose responses must fit the receive buffer.
const KEYS_PER_REQUEST: usize = 100;
/// Maximum number of changed elements that are requested by key; beyond, reading everything is cheaper.
const VERIFY_BY_KEY_MAX: usize = 5000;

/// Service that caused a change; `None` for objects that belong to no Service.
type ChangeOwner = Option<Arc<ServiceKey>>;

impl NftablesBackend {
    /// Compares the elements that the pass (update of the kernel) has written with the kernel. After a
    /// difference, the Service that caused the write fails, and the mirror (copy in memory) is dropped.
    /// Consumes the plan, because a plan for all Services is as large as the state.
    pub(super) fn verify(
        &mut self,
        desired: &DesiredState,
        touched: &TouchedObjects,
        plan: Plan,
        everything: bool,
        failed: &mut RejectedServices,
    ) -> Result<(), KernelError> {
        if plan.writes() == 0 {
            return Ok(());
        }
        // A removed interval cannot be requested by key, because the response is a wider interval around it.
        // Networks belong to no Service and rarely change.
        let has_networks = plan.groups.contains_key(&None);
        let wrong: BTreeSet<_> = if everything || has_networks || plan.writes() > VERIFY_BY_KEY_MAX {
            drop(plan);
            self.look_again(desired, touched, everything)?
        } else {
            let reading = |source| KernelError { action: "reading back what was written".into(), source };
            if !self.chains_are_right().map_err(reading)? {
                return Err(differs("a chain"));
            }
            let groups = plan.groups.iter().filter(|(service, _)| !is_failed(service.as_ref(), failed));
            let groups: Vec<_> = groups.collect();
            let changes = groups
                .iter()
                .flat_map(|(service, changes)| changes.iter().map(move |change| (*service, change)));
            self.wrong_keys(&changes.collect::<Vec<_>>()).map_err(reading)?
        };
        for service in wrong {
            if is_failed(service.as_ref(), failed) {
                continue;
            }
            self.mirror = None;
            let Some(service) = service else {
                return Err(differs("an element that belongs to no Service"));
            };
            let message = "the kernel returned something else than was written".to_owned();
            let outcome = Outcome::Failed { reason: FailureReason::VerificationFailed, message };
            failed.insert(service, outcome);
        }
        Ok(())
    }

    /// Reads the whole table again and returns the Services whose elements still differ from the wanted ones.
    ///
    /// A difference counts only if it persists, because the kernel may resize a grown hash table meanwhile
    /// ([`kernel::nftables::settle`]).
    fn look_again(
        &mut self,
        desired: &DesiredState,
        touched: &TouchedObjects,
        everything: bool,
    ) -> Result<BTreeSet<ChangeOwner>, KernelError> {
        let mut pause = RESIZE_PAUSE;
        for _ in 1..LOOKS_MAX {
            let again = self.look(desired, touched, everything)?;
            if again.structure.is_empty() && again.groups.is_empty() {
                return Ok(BTreeSet::new());
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        let again = self.look(desired, touched, everything)?;
        if again.structure.is_empty() {
            Ok(again.groups.into_keys().collect())
        } else {
            Err(differs("the fixed part of our table"))
        }
    }

    fn look(
        &mut self,
        desired: &DesiredState,
        touched: &TouchedObjects,
        everything: bool,
    ) -> Result<Plan, KernelError> {
        self.observe()?;
        Ok(self.plan(desired, touched, everything))
    }

    /// Returns true if the pick chains (which pick a target slot) that the pass has created contain their
    /// rules.
    fn chains_are_right(&mut self) -> io::Result<bool> {
        let table = self.options.table;
        let mut observation = Observation::new(self.options);
        for &pick in &self.chains_made {
            let chain = Chain::Pick(pick);
            let rules = self.netlink.dump(
                &dump_rules(table, Some(&chain.to_string())),
                Vec::new,
                |rules, answer| {
                    rules.push(answer.payload.to_vec());
                    Ok(())
                },
            )?;
            observation.expect_chain(chain);
            for rule in &rules {
                let invalid = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
                observation.rule(&super::received(rule)).map_err(invalid)?;
            }
        }
        Ok(observation.finish().structure.chains.values().all(|is_right| *is_right))
    }

    /// Returns the Services with a changed element that differs from the wanted one.
    fn wrong_keys(&mut self, changes: &[(&ChangeOwner, &Change)]) -> io::Result<BTreeSet<ChangeOwner>> {
        let table = self.options.table;
        let mut added: BTreeMap<SetId, Vec<(SetElement, &ChangeOwner)>> = BTreeMap::new();
        for (service, change) in changes {
            if let Change::Add(element) = change {
                added.entry(element.set()).or_default().push((*element, service));
            }
        }
        let mut wrong = BTreeSet::new();
        for (set, elements) in &added {
            for chunk in elements.chunks(KEYS_PER_REQUEST) {
                let wanted: Vec<_> = chunk.iter().map(|(element, _)| *element).collect();
                let mut shown = BTreeSet::new();
                self.netlink.ask(&[render::get_elements(table, *set, &wanted)], |_, answer| {
                    parse::for_each_element(*set, answer, |element| shown.extend(element.ok()))
                })?;
                // The kernel stops at the first missing key, so the keys after it are requested one by one.
                for (element, service) in chunk.iter().filter(|(element, _)| !shown.contains(element)) {
                    let mut found = false;
                    self.netlink.ask(&[render::get_elements(table, *set, &[*element])], |_, answer| {
                        parse::for_each_element(*set, answer, |shown| found |= shown == Ok(*element))
                    })?;
                    if !found {
                        wrong.insert((*service).clone());
                    }
                }
            }
        }
        wrong.extend(self.still_there(changes)?.into_iter().cloned());
        Ok(wrong)
    }

    /// Returns the Services with a removed element that still exists. A response to the request for its key
    /// is no proof, because another element may have the same key, or an interval that contains the key.
    fn still_there<'a>(
        &mut self,
        changes: &[(&'a ChangeOwner, &Change)],
    ) -> io::Result<Vec<&'a ChangeOwner>> {
        let removed = |(service, change): &(&'a ChangeOwner, &Change)| match change {
            Change::Remove(element) => Some((*element, *service)),
            Change::Add(_) => None,
        };
        let gone: Vec<_> = changes.iter().filter_map(removed).collect();
        let table = self.options.table;
        let question =
            |(element, _): &(SetElement, _)| render::get_elements(table, element.set(), &[*element]);
        let mut found = BTreeSet::new();
        self.netlink.ask(&gone.iter().map(question).collect::<Vec<_>>(), |index, answer| {
            let Some((element, _)) = gone.get(index) else { return Ok(()) };
            parse::for_each_element(element.set(), answer, |shown| {
                if shown.as_ref() == Ok(element) {
                    found.insert(index);
                }
            })
        })?;
        Ok(found.into_iter().filter_map(|index| gone.get(index)).map(|(_, service)| *service).collect())
    }
}

fn is_failed(service: Option<&Arc<ServiceKey>>, failed: &RejectedServices) -> bool {
    service.is_some_and(|service| failed.contains_key(service))
}

fn differs(what: &str) -> KernelError {
    let source = io::Error::other(format!("the kernel returned {what} differently than it was written"));
    KernelError { action: "verifying".into(), source }
}

#[cfg(test)]
mod tests {
    use model::{
        kinds::service::Protocol,
        primitives::quantity::Port,
        program::{Destination, Frontend, Target},
    };
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::{
        Scope,
        nftables::{
            NftablesOptions,
            element::{FrontendChain, Slot},
            schema::{Pick, Pool},
        },
    };

    /// In a network namespace with a small table, the read-back returns exactly the Services with a missing
    /// element, a different element, or an element that should have been removed.
    #[test]
    fn reading_back_tells_what_is_missing_different_or_still_there() {
        let address = "10.96.0.1".parse().unwrap();
        let port = Port::new(80).unwrap();
        let frontend = Frontend {
            destination: Destination::Address(address),
            protocol: Protocol::Tcp,
            ports: port.into(),
        };
        let other = Frontend { protocol: Protocol::Udp, ..frontend };
        let target = |text: &str| Target { address: text.parse().unwrap(), port: Some(port) };
        let slot = |index| Slot { pool: Pool::Workloads, index };
        let there = [
            Change::Add(SetElement::VirtualAddress(address)),
            Change::Add(SetElement::Dispatch(frontend, FrontendChain::Refuse)),
            Change::Add(SetElement::Slot(frontend, slot(0), target("10.1.1.2"))),
        ];
        let service = |name: &str| Some(Arc::new(ServiceKey::try_from(format!("default/{name}")).unwrap()));
        let claims = [
            ("added", there[2]),
            ("added-too", there[1]),
            ("absent", Change::Add(SetElement::Slot(frontend, slot(1), target("10.1.1.2")))),
            ("different", Change::Add(SetElement::Slot(other, slot(0), target("10.1.9.9")))),
            ("still-there", Change::Remove(SetElement::VirtualAddress(address))),
            ("gone", Change::Remove(SetElement::VirtualAddress("10.96.0.2".parse().unwrap()))),
            ("gone-by-replacement", Change::Remove(SetElement::Slot(frontend, slot(0), target("10.1.3.2")))),
        ];
        let in_other_slot = Change::Add(SetElement::Slot(other, slot(0), target("10.1.2.2")));
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("these tests run as root");
            let mut backend = NftablesBackend::open(NftablesOptions::default()).unwrap();
            assert!(backend.apply(&DesiredState::default(), &Scope::Everything).failed.is_none());
            let changes = [&there[..], &[in_other_slot]].concat();
            let commands = render::commands(&[], &BTreeSet::new(), &changes, backend.options);
            backend.send(&commands).unwrap().unwrap();
            // A chain that is recorded as created does not exist.
            backend.chains_made.insert(Pick::parse("cluster-7").unwrap());
            assert!(!backend.chains_are_right().unwrap());
            let claims = claims.map(|(name, change)| (service(name), change));
            let claims: Vec<_> = claims.iter().map(|(service, change)| (service, change)).collect();
            backend.wrong_keys(&claims).unwrap()
        });
        let wrong = thread.join().unwrap().into_iter().flatten().map(|service| service.name.to_string());
        assert_eq!(wrong.collect::<Vec<_>>(), ["absent", "different", "still-there"]);
    }
}
