//! Explanation of the answers of this server to a name: the zones that the client sees, the reason of each record, and the
//! upstream servers and the cache for other names.

use std::net::IpAddr;

use hickory_proto::rr;
use model::discovery::dns::{
    ClientView, DnsQuestion, NameExplanation, NameQuestion, RecordType, Resolution, answer_in, explain_name,
};
use serde::Serialize;

use super::Responder;
use crate::forward::ForwardedName;

/// Explanation of the answers to a name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerExplanation {
    /// Zones from which the client gets answers, with the reason.
    view: String,
    /// Names that the client asks. Absent while the server has no state: all questions fail then.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<NameExplanation>,
    /// Handling of each name of the explanation, in the same order.
    handling: Vec<NameHandling>,
}

/// Handling of one name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "result")]
enum NameHandling {
    /// Answered from the zones, without upstream servers.
    Own,
    /// Asked of upstream servers, or answered from the cache; the end of an alias, too.
    Forwarded {
        /// Name that is asked, with its servers and the cache.
        forwarded: ForwardedName,
    },
    /// Refused.
    Refused {
        /// Reason as the end of a sentence.
        reason: String,
    },
}

impl Responder {
    /// Explains the answers to a name. Asks no upstream server, and counts no question.
    pub(crate) fn explain(&self, question: &NameQuestion) -> ServerExplanation {
        let (view, reason) = self.explained_view(question.client);
        let Some(zone) = self.zones.borrow().clone() else {
            return ServerExplanation { view: reason, explanation: None, handling: Vec::new() };
        };
        let explanation = explain_name(&zone, question);
        let handling = explanation.attempts.iter().map(|attempt| {
            match answer_in(&zone, &DnsQuestion::new(&attempt.name, question.record_type), view) {
                Resolution::Own(found) => {
                    let forwarded =
                        found.chase.and_then(|target| self.forwarded(&target, question.record_type));
                    forwarded.map_or(NameHandling::Own, |forwarded| NameHandling::Forwarded { forwarded })
                }
                Resolution::Unknown => NameHandling::Own,
                Resolution::Foreign => match self.forwarded(&attempt.name, question.record_type) {
                    Some(forwarded) => NameHandling::Forwarded { forwarded },
                    None => NameHandling::Refused {
                        reason: "no --upstream server is set for the name".to_owned(),
                    },
                },
                Resolution::Refused => NameHandling::Refused {
                    reason: "the client gets answers from DnsZones with external visibility only".to_owned(),
                },
            }
        });
        let handling = handling.collect();
        ServerExplanation { view: reason, explanation: Some(explanation), handling }
    }

    /// Returns the view of a client with its reason. Without an address, the client is one of the cluster.
    fn explained_view(&self, client: Option<IpAddr>) -> (ClientView, String) {
        let Some(client) = client else {
            return (ClientView::Cluster, "all zones, as for a client of the cluster".to_owned());
        };
        let network = self.options.clients.iter().find(|network| network.contains(&client));
        match (self.view_of(client), network) {
            (ClientView::Cluster, Some(network)) => {
                (ClientView::Cluster, format!("all zones: {client} is in --client-network {network}"))
            }
            (ClientView::Cluster, None) => {
                (ClientView::Cluster, "all zones: no --client-network is set".to_owned())
            }
            (ClientView::External, _) => {
                let reason = format!("DnsZones with external visibility: {client} is in no --client-network");
                (ClientView::External, reason)
            }
        }
    }

    fn forwarded(&self, name: &str, record_type: RecordType) -> Option<ForwardedName> {
        let labels = name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes);
        let name = rr::Name::from_labels(labels).ok()?;
        let record_type = record_type.as_str().parse().unwrap_or(rr::RecordType::A);
        self.forwarder.as_ref()?.explain(&name, record_type)
    }
}
