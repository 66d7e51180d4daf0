//! Reports of attachments to the control server, which records them and fills the addresses of their Workloads.
//!
//! The first report has all attachments, later ones the differences and the refused ones, and now and then one has all again. A
//! failed report is followed by a complete one.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use attach_socket::{AttachedWorkload, AttachmentKey, RecordRefusal};
use base::{backoff::Backoff, chain, entropy};
use model::{
    kinds::{
        attachment::{AttachmentKind, CONTAINER_ID_LENGTH_MAX, InterfaceFault, WorkloadKey},
        metadata::Labels,
    },
    primitives::name::{Label, Name},
    wire::{
        attachments::{
            AttachmentChanges, AttachmentRefusal, AttachmentRequest, AttachmentResult, WANTED_MAX,
            WantedBlock,
        },
        workload_network::DeclaredInterface,
    },
};
use network::{
    attach::{
        declared::{MANAGER, ShownInterface},
        names,
    },
    refusals::RecordRefusals,
    run::NetworkShown,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::control::Control;

/// Time between two reports, so that one report covers many attachments.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of complete reports.
const COMPLETE_INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which refused attachments are reported again: the time until one is recorded after its cause has gone.
const REFUSED_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time for a report.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_FLOOR: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(60);

/// Reports the attachments of a node from the time at which the control server knows the node.
pub async fn run(
    control: Arc<Control>,
    node: Name,
    mut shown: watch::Receiver<NetworkShown>,
    refusals: watch::Sender<RecordRefusals>,
    mut is_known: watch::Receiver<bool>,
) {
    if is_known.wait_for(|is_known| *is_known).await.is_err() {
        return;
    }
    let mut backoff = Backoff::new(RETRY_FLOOR, RETRY_CAP);
    let mut reported: Option<(SentAttachments, Instant)> = None;
    let mut last_failure = None;
    loop {
        let state = shown.borrow_and_update().clone();
        let former =
            reported.as_ref().filter(|(_, at)| at.elapsed() < COMPLETE_INTERVAL).map(|(sent, _)| sent);
        let (changes, mut sent) = next(&state, former);
        let is_needed = changes.complete || !changes.attachments.is_empty() || !changes.removed.is_empty();
        let is_used = state.has_networks || !state.attachments.attachments.is_empty() || reported.is_some();
        if is_used && (is_needed || !changes.wanted.is_empty()) {
            match send(&control, &node, &changes).await {
                Ok(result) => {
                    note(&result, former.map(|former| &former.refused));
                    sent.refused = result.refused;
                    let at = reported.filter(|_| !changes.complete).map_or_else(Instant::now, |(_, at)| at);
                    reported = Some((sent, at));
                    (last_failure, backoff) = (None, Backoff::new(RETRY_FLOOR, RETRY_CAP));
                }
                Err(failure) => {
                    if last_failure.as_ref() != Some(&failure) {
                        warn!(failure, "the attachments of workloads could not be reported; retrying");
                    }
                    (last_failure, reported) = (Some(failure), None);
                    sleep(backoff.next_delay(entropy())).await;
                    continue;
                }
            }
        }
        let shown_refusals = refusals_of(&state, reported.as_ref().map(|(sent, _)| &sent.refused));
        refusals
            .send_if_modified(|former| std::mem::replace(former, shown_refusals.clone()) != shown_refusals);
        sleep(REPORT_INTERVAL).await;
        let has_refused = reported.as_ref().is_some_and(|(sent, _)| !sent.refused.is_empty());
        // Without a change, the next report is the complete one, or one of the refused attachments.
        let patience = if has_refused { REFUSED_INTERVAL } else { COMPLETE_INTERVAL };
        if let Ok(Err(_thread_ended)) = timeout(patience, shown.changed()).await {
            return;
        }
    }
}

/// Part of an Attachment that changes with each change of it.
type AttachmentVersion = (u64, Option<ShownInterface>);

/// Attachments that the control server has, by their ids, and the requested blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SentAttachments {
    /// Numbers of the Attachments, and the declared interfaces.
    versions: BTreeMap<Label, AttachmentVersion>,
    /// Attachments of these that the control server has refused. Each report has them again.
    refused: BTreeMap<Label, AttachmentRefusal>,
    wanted: Vec<WantedBlock>,
}

/// Returns the next report after a former one, and its content.
fn next(state: &NetworkShown, former: Option<&SentAttachments>) -> (AttachmentChanges, SentAttachments) {
    let all = requests(state);
    let version = |request: &AttachmentRequest| {
        let declared = state.interfaces.get(&request.workload).filter(|_| request.declared);
        (request.generation, declared.cloned())
    };
    let versions: BTreeMap<_, _> = all.iter().map(|(id, request)| (id.clone(), version(request))).collect();
    let wanted: Vec<_> = state
        .wanted
        .iter()
        .map(|(network, family)| WantedBlock { network: network.clone(), family: *family })
        .take(WANTED_MAX)
        .collect();
    let sent = SentAttachments { versions, refused: BTreeMap::new(), wanted };
    let changes = match former {
        None => AttachmentChanges {
            complete: true,
            attachments: all,
            wanted: sent.wanted.clone(),
            ..Default::default()
        },
        Some(former) => AttachmentChanges {
            complete: false,
            removed: former.versions.keys().filter(|id| !all.contains_key(*id)).cloned().collect(),
            attachments: all
                .into_iter()
                .filter(|(id, request)| {
                    former.refused.contains_key(id) || former.versions.get(id) != Some(&version(request))
                })
                .collect(),
            wanted: if sent.wanted == former.wanted { Vec::new() } else { sent.wanted.clone() },
        },
    };
    (changes, sent)
}

fn requests(state: &NetworkShown) -> BTreeMap<Label, AttachmentRequest> {
    let declared = state.interfaces.iter().filter_map(|(workload, shown)| declared_request(workload, shown));
    let requested = state.attachments.attachments.iter().filter(|attached| attached.manager != MANAGER);
    requested.filter_map(request).chain(declared).collect()
}

/// Converts a declared interface. One without addresses cannot be recorded.
fn declared_request(workload: &WorkloadKey, shown: &ShownInterface) -> Option<(Label, AttachmentRequest)> {
    let ShownInterface { key, declared, host_interface, addresses, generation, fault } = shown;
    let DeclaredInterface { network, kind, name, network_namespace: _, mac, uid: _, addresses: _ } = declared;
    let id = Label::parse(&names::id(key)).ok()?;
    let request = AttachmentRequest {
        workload: workload.clone(),
        labels: Labels::default(),
        network: Some(network.clone()),
        kind: *kind,
        interface: name.clone(),
        host_interface: host_interface.clone(),
        mac: mac.clone(),
        addresses: addresses.clone(),
        container_id: None,
        generation: *generation,
        declared: true,
        fault: fault.clone(),
    };
    (!addresses.is_empty()).then_some((id, request))
}

/// Converts an attachment. The agent has checked its names.
fn request(attached: &AttachedWorkload) -> Option<(Label, AttachmentRequest)> {
    let AttachedWorkload {
        key,
        netns: _,
        network,
        namespace,
        workload,
        labels,
        manager: _,
        host_interface,
        mac,
        addresses,
        mtu: _,
        generation,
        refusal: _,
    } = attached;
    let id = Label::parse(&names::id(key)).ok()?;
    let workload = WorkloadKey::try_from(format!("{namespace}/{workload}")).ok()?;
    let container_id = (key.container_id.len() <= CONTAINER_ID_LENGTH_MAX).then(|| key.container_id.clone());
    let request = AttachmentRequest {
        workload,
        labels: serde_json::from_value(serde_json::json!(labels)).unwrap_or_default(),
        network: Name::parse(network).ok(),
        kind: AttachmentKind::Veth,
        interface: key.interface.clone(),
        host_interface: host_interface.clone(),
        mac: Some(mac.clone()),
        addresses: addresses.clone(),
        container_id,
        generation: *generation,
        declared: false,
        fault: None,
    };
    Some((id, request))
}

/// Sends a report to the first control server that accepts it.
async fn send(
    control: &Control,
    node: &Name,
    changes: &AttachmentChanges,
) -> Result<AttachmentResult, String> {
    let mut failure = String::new();
    for server in control.servers() {
        let url = control.url(server, &format!("/v1/nodes/{node}/attachments"));
        let response = control.client().put(url).timeout(REQUEST_TIMEOUT).json(changes).send().await;
        match response {
            Ok(response) if response.status().is_success() => {
                return response.json().await.map_err(|error| chain(&error));
            }
            Ok(response) => failure = format!("{} answered {}", control.base(server), response.status()),
            Err(error) => failure = chain(&error),
        }
    }
    Err(failure)
}

/// Returns the attachments that the control server does not record. Each report has all attachments that were refused before,
/// so that its answer has all refusals. The reason of the agent itself comes first, because it is the cause of the other.
fn refusals_of(state: &NetworkShown, refused: Option<&BTreeMap<Label, AttachmentRefusal>>) -> RecordRefusals {
    let of = |key: &AttachmentKey| {
        let refusal = refused?.get(&Label::parse(&names::id(key)).ok()?)?;
        Some(RecordRefusal { reason: format!("{:?}", refusal.reason), message: refusal.message.clone() })
    };
    let requested = state.attachments.attachments.iter().filter(|attached| attached.manager != MANAGER);
    let requested = requested.map(|attached| (&attached.key, attached.generation, of(&attached.key)));
    let declared = state.interfaces.iter().map(|(workload, shown)| {
        let refusal = of(&shown.key);
        let own = shown.fault.as_ref().filter(|_| refusal.is_some() || shown.addresses.is_empty());
        let own = own.map(|InterfaceFault { reason, message }| RecordRefusal {
            reason: format!("{reason:?}"),
            message: format!("Workload {workload}: {message}"),
        });
        (&shown.key, shown.generation, own.or(refusal))
    });
    let all = requested.chain(declared);
    RecordRefusals::new(
        all.filter_map(|(key, generation, refusal)| Some((key.clone(), generation, refusal?))),
    )
}

/// Logs the refusals that differ from the former ones.
fn note(result: &AttachmentResult, former: Option<&BTreeMap<Label, AttachmentRefusal>>) {
    for (id, refusal) in &result.refused {
        if former.and_then(|former| former.get(id)) == Some(refusal) {
            continue;
        }
        let (reason, message) = (refusal.reason, &refusal.message);
        warn!(%id, ?reason, message, "the control server does not record an attachment");
    }
    debug!(position = %result.position, "reported attachments of workloads");
}

#[cfg(test)]
mod tests {
    use attach_socket::AttachedList;
    use model::wire::attachments::RefusedAttachment;

    use super::*;

    fn state(ids: &[(&str, u64)]) -> NetworkShown {
        let attachment = |(id, generation): &(&str, u64)| AttachedWorkload {
            key: AttachmentKey { container_id: (*id).to_owned(), interface: "eth0".to_owned() },
            netns: "/run/netns/x".to_owned(),
            network: "pods".to_owned(),
            namespace: "default".to_owned(),
            workload: (*id).to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
            manager: String::new(),
            host_interface: "tgaaaaaaaaaaa".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            addresses: vec!["10.9.0.1".parse().unwrap()],
            mtu: 1500,
            generation: *generation,
            refusal: None,
        };
        let attachments = Arc::new(AttachedList { attachments: ids.iter().map(attachment).collect() });
        NetworkShown { attachments, has_networks: true, ..NetworkShown::default() }
    }

    #[test]
    fn the_first_report_is_complete_and_later_ones_have_the_differences() {
        let (changes, sent) = next(&state(&[("a", 1), ("b", 2)]), None);
        assert!(changes.complete && changes.removed.is_empty());
        assert_eq!(changes.attachments.len(), 2);
        let first = changes.attachments.values().next().unwrap();
        assert_eq!(serde_json::to_value(&first.labels).unwrap(), serde_json::json!({"app": "web"}));
        let (changes, sent) = next(&state(&[("b", 2), ("c", 3)]), Some(&sent));
        assert!(!changes.complete);
        assert_eq!((changes.attachments.len(), changes.removed.len()), (1, 1));
        let (changes, _) = next(&state(&[("b", 2), ("c", 3)]), Some(&sent));
        assert_eq!(changes, AttachmentChanges::default());
    }

    fn refused(id: &Label) -> AttachmentResult {
        let refusal = AttachmentRefusal {
            reason: RefusedAttachment::NamespaceNotAllowed,
            message: "not permitted".to_owned(),
        };
        AttachmentResult { refused: BTreeMap::from([(id.clone(), refusal)]), ..AttachmentResult::default() }
    }

    fn declaring(mut state: NetworkShown, addresses: &[&str], fault: Option<&str>) -> NetworkShown {
        let workload = WorkloadKey::try_from("default/vm".to_owned()).unwrap();
        let declared = DeclaredInterface {
            network: Name::parse("pods").unwrap(),
            kind: AttachmentKind::Tap,
            name: "tap0".to_owned(),
            network_namespace: None,
            mac: None,
            uid: None,
            addresses: Vec::new(),
        };
        let shown = ShownInterface {
            key: network::attach::declared::key_of(&workload, &declared),
            declared,
            host_interface: "tap0".to_owned(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            generation: 7,
            fault: fault.map(|message| InterfaceFault {
                reason: model::kinds::attachment::InterfaceFaultReason::Missing,
                message: message.to_owned(),
            }),
        };
        state.interfaces = Arc::new([(workload, shown)].into());
        state
    }

    /// Input: a declared interface that is missing, then configured, and one without addresses. Output: each change is reported,
    /// beside the veth pairs that requests made; without addresses, the doctor has the reason instead.
    #[test]
    fn a_declared_interface_is_reported_with_its_fault() {
        let mut both = state(&[("a", 1), ("b", 2)]);
        let mut list = AttachedList::clone(&both.attachments);
        list.attachments[1].manager = MANAGER.to_owned();
        both.attachments = Arc::new(list);
        let missing = declaring(both.clone(), &["10.9.0.7"], Some("no interface tap0"));
        let (changes, sent) = next(&missing, None);
        let declared: Vec<_> = changes.attachments.values().filter(|request| request.declared).collect();
        assert_eq!((changes.attachments.len(), declared.len()), (2, 1));
        assert_eq!((declared[0].kind, declared[0].generation), (AttachmentKind::Tap, 7));
        assert_eq!(declared[0].fault.as_ref().unwrap().message, "no interface tap0");
        assert_eq!(next(&missing, Some(&sent)).0, AttachmentChanges::default());
        let configured = declaring(both.clone(), &["10.9.0.7"], None);
        let (changes, _) = next(&configured, Some(&sent));
        assert_eq!((changes.attachments.len(), changes.removed.len()), (1, 0));
        assert_eq!(refusals_of(&configured, None).summary(), None);
        let without = declaring(both, &[], Some("no free address"));
        assert_eq!(next(&without, Some(&sent)).0.removed.len(), 1);
        let summary = refusals_of(&without, None).summary().unwrap();
        assert!(summary.ends_with("Missing, Workload default/vm: no free address"), "{summary}");
    }

    /// Input: a refused attachment, which ends later. Output: each report has it until its end, so that a namespace that is
    /// permitted later is taken; its end is reported, because an earlier one of its id may be recorded.
    #[test]
    fn a_refused_attachment_is_in_each_report_until_its_end() {
        let both = state(&[("a", 1), ("b", 2)]);
        let (changes, mut sent) = next(&both, None);
        let id = Label::parse(&names::id(&both.attachments.attachments[0].key)).unwrap();
        sent.refused = refused(&id).refused;
        let (changes_again, sent_again) = next(&both, Some(&sent));
        assert_eq!(
            changes_again.attachments,
            BTreeMap::from([(id.clone(), changes.attachments[&id].clone())])
        );
        assert_eq!(next(&both, Some(&sent_again)).0, AttachmentChanges::default(), "accepted");
        let (changes, _) = next(&state(&[("b", 2)]), Some(&sent));
        assert_eq!((changes.removed, changes.attachments.len()), ([id].into(), 0));
    }

    /// Input: an answer that refuses one of two attachments. Output: it alone is shown with the reason, but not a later
    /// attachment of its name.
    #[test]
    fn a_refusal_is_shown_at_its_attachment() {
        let both = state(&[("a", 1), ("b", 2)]);
        let [a, b] = [0, 1].map(|at| both.attachments.attachments[at].clone());
        let id = Label::parse(&names::id(&a.key)).unwrap();
        let refusals = refusals_of(&both, Some(&refused(&id).refused));
        assert_eq!(refusals.marked(b.clone()).refusal, None);
        assert_eq!(refusals.marked(a.clone()).refusal.unwrap().reason, "NamespaceNotAllowed");
        assert_eq!(refusals.of(&AttachedWorkload { generation: 3, ..a }), None);
        let summary = refusals.summary().unwrap();
        assert_eq!(
            summary,
            "the control server does not record 1 attachment; first a/eth0: NamespaceNotAllowed, not permitted"
        );
        let finding = crate::doctor::unrecorded(&refusals).unwrap();
        assert_eq!((finding.check.as_str(), finding.message), ("attachments", summary));
        let none = refusals_of(&both, Some(&AttachmentResult::default().refused));
        assert_eq!((none.summary(), crate::doctor::unrecorded(&none)), (None, None));
    }
}
