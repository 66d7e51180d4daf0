//! Replies to queries from the control server, such as previews and packet traces. The replies are computed,
//! without kernel writes, by the functions that also program the kernel.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use base::{Gate, chain, limit_message};
use conntrack::risk;
use dataplane::{DesiredState, KernelError, Scope};
use model::{
    kinds::resource::ServiceKey,
    primitives::quantity::Position,
    program::{Frontend, Target},
    wire::{
        ask::{Question, Reply},
        feed::StartMode,
        plan::{Comparison, LineChange, PLAN_LINES_MAX, PREVIEW_WORDS_MAX, Preview, Proposal, lines_between},
        trace::{Packet, STEPS_MAX},
    },
};
use speaker::peering;

use super::{Agent, backends::Takeover};
use crate::{
    agent::announcement_preview::{self, Side},
    ask::failed,
    feed::machine::{Batch, NetworkChanges, PolicyUpdates, ServiceChange},
    state::{ChangedObjects, State, desired::DesiredBuilder},
};

/// Option of a preview: established connections that the change affects are counted by reading the conntrack
/// table, or not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sessions {
    Counted,
    Left,
}

impl Agent {
    /// Returns the reply to a query. May read the kernel, never writes it.
    pub fn answer(&mut self, question: Question) -> Reply {
        let Some(position) = self.state.position() else {
            return failed("no state has been loaded");
        };
        if self.guard.is_holding() && matches!(question, Question::Plan(_)) {
            return failed(
                "the node holds back the state of control, so the effect of a change cannot be computed",
            );
        }
        // A trace reads the kernel anew, so it needs no mirror (copy of the kernel state in memory); it is
        // most useful after a failure.
        let needs_mirror = matches!(question, Question::Plan(_));
        if self.full_look.is_some() && needs_mirror {
            let why = self.last_failure.as_deref().unwrap_or("it is about to be read");
            return failed(&format!("the kernel state is not known: {why}"));
        }
        match question {
            Question::Plan(proposal) => reply(self.plan(*proposal, position)),
            Question::Compare(comparison) => reply(self.compare(*comparison, position)),
            Question::Trace(packet) => self.trace(&packet),
            Question::Doctor | Question::Fix { .. } => failed("the loop does not examine the machine"),
            Question::Confirm { epoch } => self.confirm(epoch, Instant::now()),
        }
    }

    fn plan(&mut self, proposal: Proposal, position: Position) -> Result<Preview, Reply> {
        let mut preview = self.preview(proposal, position, Sessions::Counted)?;
        bound(&mut preview);
        Ok(preview)
    }

    /// Returns the lines by which the previews of two proposed changes differ. `position` is the position
    /// (epoch and revision) of the current state, from which both changes start. Both previews are computed
    /// in one call, so that the current state cannot change in between.
    fn compare(&mut self, comparison: Comparison, position: Position) -> Result<Preview, Reply> {
        let Comparison { from, to } = comparison;
        let from = self.preview(from, position, Sessions::Left)?;
        let to = self.preview(to, position, Sessions::Left)?;
        let failures: BTreeSet<_> = from.failures.into_iter().chain(to.failures).collect();
        let mut preview = Preview {
            kernel: lines_between(&from.kernel, &to.kernel),
            announcements: lines_between(&from.announcements, &to.announcements),
            failures: failures.into_iter().collect(),
            ..Preview::default()
        };
        bound(&mut preview);
        Ok(preview)
    }

    fn preview(
        &mut self,
        proposal: Proposal,
        position: Position,
        sessions: Sessions,
    ) -> Result<Preview, Reply> {
        let mut state = self.state.clone();
        let touched = match state.apply(batch(proposal, position)) {
            Ok(touched) => touched,
            Err(fault) => return Err(failed(&fault.to_string())),
        };
        let mut derived = self.derived.clone();
        let followed = derived.update(&state, touched.clone());
        let mut preview = Preview { failures: failures(&derived, &followed.services), ..Preview::default() };
        let takeover =
            touched.node.then(|| self.backends.would_change(&self.defaults.backend(state.node()))).flatten();
        if sessions == Sessions::Counted && self.backends.current().is_tracked() {
            let lost = lost(self.derived.desired(), derived.desired(), &followed.services);
            // If the conntrack table cannot be read, the count is left out.
            preview.connections_at_risk = self.cleaner.count(&lost).ok().flatten();
        }
        let is_listed = match (&takeover, sessions) {
            (None, Sessions::Counted | Sessions::Left) => true,
            // The preview of a past state lists lines as the current mode would.
            (Some(takeover), Sessions::Left) => {
                preview.failures.push(format!("{}, whose lines are not listed here", takeover.words));
                true
            }
            // With a pending change of mode, the current mode's lines would never be programmed.
            (Some(takeover), Sessions::Counted) => {
                let words = self.made_anew(takeover, derived.desired());
                preview.failures.push(words);
                false
            }
        };
        if is_listed {
            match self.backends.current().preview(derived.desired(), &Scope::Services(followed.services)) {
                Ok(Some(lines)) => preview.kernel = lines,
                Ok(None) => preview
                    .failures
                    .push(format!("{} mode cannot list its lines", self.backends.mode().as_str())),
                Err(error) => return Err(kernel_failed(&error)),
            }
        }
        self.preview_announcements(&state, &touched, &derived, &mut preview);
        Ok(preview)
    }

    /// Describes the size of a change to another backend: the numbers of Services and frontends to program.
    /// Unless the new backend takes over the kernel objects, the number of rules that the current backend
    /// would remove is included if it can be determined.
    fn made_anew(&mut self, takeover: &Takeover, desired: &DesiredState) -> String {
        let Takeover { words, is_in_place } = takeover;
        let frontends: usize = desired.programs.values().map(|wanted| wanted.program.frontends.len()).sum();
        let made = format!(
            "{words}: all of its rules are made anew, which are not listed here (Services: {}, frontends: {frontends})",
            desired.programs.len()
        );
        if *is_in_place {
            return format!("{made}, in the place of the present ones");
        }
        let gone = self.backends.current().preview(&DesiredState::default(), &Scope::Everything);
        // The removal is mentioned even if the lines cannot be counted.
        let lines =
            gone.ok().flatten().map_or_else(String::new, |lines| format!(" (lines: {})", lines.len()));
        format!("{made}; the present ones{lines} go when the connections that they carry have ended")
    }

    fn preview_announcements(
        &self,
        state: &State,
        touched: &ChangedObjects,
        derived: &DesiredBuilder,
        preview: &mut Preview,
    ) {
        let node = self.derived.node();
        if touched.bgp {
            let (now, then) = (self.state.node().bgp.as_deref(), state.node().bgp.as_deref());
            preview.session_resets = peering::resets(node, now, then);
        }
        let programmed = |service: &ServiceKey| self.gate(service).unwrap_or(Gate::Open);
        let would_be = |service: &ServiceKey| match derived.unsupported().get(service) {
            Some(failure) => Gate::Closed(failure.message.clone()),
            None if touched.services.contains(service) => Gate::Open,
            None => programmed(service),
        };
        let before = Side { state: &self.state, node, gate: &programmed };
        let after = Side { state, node, gate: &would_be };
        preview.announcements = announcement_preview::changes(&before, &after);
    }

    fn trace(&mut self, packet: &Packet) -> Reply {
        let traced = self.backends.current().trace(std::slice::from_ref(packet));
        match traced.map(|traced| traced.and_then(|traced| traced.into_iter().next())) {
            Ok(Some(mut traced)) => {
                if let Some(step) = self.routes.step(packet) {
                    traced.steps.insert(0, step);
                    traced.steps.truncate(STEPS_MAX);
                }
                Reply::Trace(traced)
            }
            Ok(None) => failed(&format!("{} mode cannot trace packets", self.backends.mode().as_str())),
            Err(error) => kernel_failed(&error),
        }
    }
}

fn reply(preview: Result<Preview, Reply>) -> Reply {
    preview.map_or_else(|why_not| why_not, Reply::Plan)
}

/// Returns the targets that the frontends of `services` lose if the desired state changes from `before` to
/// `after`.
fn lost(
    before: &DesiredState,
    after: &DesiredState,
    services: &BTreeSet<ServiceKey>,
) -> BTreeSet<(Frontend, Target)> {
    let program = |desired: &DesiredState, service: &ServiceKey| {
        desired.programs.get(service).map(|desired| Arc::clone(&desired.program)).unwrap_or_default()
    };
    let of = |service: &ServiceKey| risk::lost(&program(before, service), &program(after, service));
    services.iter().flat_map(of).collect()
}

fn kernel_failed(error: &KernelError) -> Reply {
    failed(&chain(error))
}

/// Converts a proposed change into a batch of state changes (a delta, as the control server would send it)
/// that starts at the current position (epoch and revision).
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
        networks: NetworkChanges::default(),
        policy: PolicyUpdates::default(),
        position,
        traces: Vec::new(),
    }
}

/// Returns a failure message for each of `services` that uses a feature which the backend does not support.
fn failures(derived: &DesiredBuilder, services: &BTreeSet<ServiceKey>) -> Vec<String> {
    let unsupported = derived.unsupported().iter().filter(|(service, _)| services.contains(*service));
    let words = unsupported
        .map(|(service, failure)| limit_message(format!("Service {service}: {}", failure.message)));
    words.take(PREVIEW_WORDS_MAX).collect()
}

/// Truncates a preview to the size limits of a reply and counts the omitted lines.
fn bound(preview: &mut Preview) {
    let Preview { kernel, announcements, omitted, session_resets, connections_at_risk: _, failures } =
        preview;
    let mut room = LINES_BYTES_MAX;
    for lines in [announcements, kernel] {
        let fits = |line: &&LineChange| {
            let bytes = line.place.len() + line.line.len() + LINE_OVERHEAD_BYTES;
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        };
        let kept = lines.iter().take(PLAN_LINES_MAX).take_while(fits).count();
        *omitted += u64::try_from(lines.len() - kept).unwrap_or(u64::MAX);
        lines.truncate(kept);
    }
    session_resets.truncate(PREVIEW_WORDS_MAX);
    failures.truncate(PREVIEW_WORDS_MAX);
}

/// Maximum total size of the lines in a reply, in bytes, so that the whole reply stays within
/// `model::ask::REPLY_BYTES_MAX`.
const LINES_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Estimated JSON overhead of a line in bytes, escaped quotes included.
const LINE_OVERHEAD_BYTES: usize = 64;
