//! What the loop answers to questions of control: by the functions that would carry it out, without a write.

use std::collections::BTreeSet;

use model::{
    ask::{Question, Reply},
    feed::StartMode,
    plan::{PREVIEW_WORDS_MAX, Preview, Proposal},
    quantity::Position,
    resource::ServiceKey,
    trace::Packet,
};

use super::Agent;
use crate::{
    ask::failed,
    dataplane::{KernelError, Scope},
    desired::{Derived, limit_message},
    feed::{
        chain,
        machine::{Batch, ServiceChange},
    },
    state::{State, Touched},
};

impl Agent {
    /// Answers a question. The kernel may be read, and is not written.
    pub fn answer(&mut self, question: Question) -> Reply {
        let Some(position) = self.state.position() else {
            return failed("no state has been loaded");
        };
        if self.full_look.is_some() {
            let why = self.last_failure.as_deref().unwrap_or("it is about to be looked at");
            return failed(&format!("what the kernel holds is not known: {why}"));
        }
        match question {
            Question::Plan(proposal) => self.preview(*proposal, position),
            Question::Trace(packet) => self.trace(&packet),
            Question::Doctor => failed("the loop does not look at the machine"),
        }
    }

    fn preview(&mut self, proposal: Proposal, position: Position) -> Reply {
        let mut state = self.state.clone();
        let touched = match state.apply(batch(proposal, position)) {
            Ok(touched) => touched,
            Err(fault) => return failed(&fault.to_string()),
        };
        let mut derived = self.derived.clone();
        let followed = derived.update(&state, touched.clone());
        let mut preview = Preview { failures: failures(&derived, &followed.services), ..Preview::default() };
        if touched.node {
            preview.failures.extend(self.backends.would_change(&self.defaults.backend(state.node())));
        }
        let scope = Scope::Services(followed.services);
        match self.backends.current().preview(derived.desired(), &scope) {
            Ok(Some(lines)) => preview.kernel = lines,
            Ok(None) => {
                preview.failures.push(format!("{} mode cannot list its lines", self.backends.mode().as_str()))
            }
            Err(error) => return kernel_failed(&error),
        }
        self.preview_announcements(&state, &touched, &mut preview);
        preview.failures.truncate(PREVIEW_WORDS_MAX);
        Reply::Plan(preview)
    }

    fn preview_announcements(&self, _state: &State, _touched: &Touched, _preview: &mut Preview) {}

    fn trace(&mut self, packet: &Packet) -> Reply {
        match self.backends.current().trace(packet) {
            Ok(Some(traced)) => Reply::Trace(traced),
            Ok(None) => failed(&format!("{} mode cannot trace packets", self.backends.mode().as_str())),
            Err(error) => kernel_failed(&error),
        }
    }
}

fn kernel_failed(error: &KernelError) -> Reply {
    failed(&chain(error))
}

/// A proposal as the feed would bring it, from where the agent is.
fn batch(proposal: Proposal, position: Position) -> Batch {
    let Proposal { services, removed, addresses, addresses_removed, network, node } = proposal;
    let set = services.into_iter().map(|service| (service.service.clone(), ServiceChange::Set(service)));
    let gone = removed.into_iter().map(|key| (key, ServiceChange::Removed(position.revision)));
    let set_addresses = addresses.into_iter().map(|address| (address.address, Some(address)));
    let gone_addresses = addresses_removed.into_iter().map(|address| (address, None));
    Batch {
        mode: StartMode::Delta,
        network,
        node,
        services: gone.chain(set).collect(),
        addresses: gone_addresses.chain(set_addresses).collect(),
        position,
    }
}

/// What of the Services in scope this agent would not carry out.
fn failures(derived: &Derived, services: &BTreeSet<ServiceKey>) -> Vec<String> {
    let unsupported = derived.unsupported().iter().filter(|(service, _)| services.contains(*service));
    let words = unsupported
        .map(|(service, failure)| limit_message(format!("Service {service}: {}", failure.message)));
    words.take(PREVIEW_WORDS_MAX).collect()
}
