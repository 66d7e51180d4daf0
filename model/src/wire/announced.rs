//! Stream of the load balancer addresses that are announced, which DNS servers follow.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use utoipa::{
    ToSchema,
    openapi::{RefOr, Schema, schema::RefBuilder},
};

/// Line of the stream of announced addresses: `complete`, `change`, `heartbeat` or `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum AnnouncedFrame {
    /// All announced addresses of Services with host names and of Services that publish a Gateway. Sent once, as soon as the server knows them.
    Complete {
        /// All addresses that are announced at the time of the line.
        #[schema(value_type = Vec<String>)]
        addresses: BTreeSet<IpAddr>,
    },
    /// Difference to the addresses of the previous lines.
    Change {
        /// Addresses that are announced now.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        #[schema(value_type = Vec<String>)]
        added: BTreeSet<IpAddr>,
        /// Addresses that are not announced any longer.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        #[schema(value_type = Vec<String>)]
        removed: BTreeSet<IpAddr>,
    },
    /// Line without information, sent if nothing has changed for some seconds.
    Heartbeat,
    /// Last line of a stream that the server ends, because the token has expired or lost its permissions.
    Error {
        /// Reason as an RFC 9457 problem document.
        #[schema(schema_with = problem)]
        problem: serde_json::Value,
    },
}

/// Returns a reference to the schema of error responses, which the API defines.
fn problem() -> RefOr<Schema> {
    let reference = RefBuilder::new().ref_location_from_schema_name("Problem");
    reference.description(Some("Reason as an RFC 9457 problem document.")).build().into()
}

impl AnnouncedFrame {
    /// Returns the difference between two sets of addresses, or `None` if they are equal.
    #[must_use]
    pub fn between(before: &BTreeSet<IpAddr>, after: &BTreeSet<IpAddr>) -> Option<Self> {
        let added: BTreeSet<_> = after.difference(before).copied().collect();
        let removed: BTreeSet<_> = before.difference(after).copied().collect();
        (!added.is_empty() || !removed.is_empty()).then_some(Self::Change { added, removed })
    }

    /// Applies the line to the addresses of the previous lines.
    pub fn apply(self, addresses: &mut BTreeSet<IpAddr>) {
        match self {
            Self::Complete { addresses: all } => *addresses = all,
            Self::Change { added, removed } => {
                addresses.retain(|address| !removed.contains(address));
                addresses.extend(added);
            }
            Self::Heartbeat | Self::Error { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_between_two_sets_leads_from_one_to_the_other() {
        let set =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<BTreeSet<IpAddr>>();
        let (before, after) = (set(&["192.0.2.1", "192.0.2.2"]), set(&["192.0.2.2", "2001:db8::1"]));
        let frame = AnnouncedFrame::between(&before, &after).unwrap();
        let text = serde_json::to_string(&frame).unwrap();
        assert_eq!(text, r#"{"type":"change","added":["2001:db8::1"],"removed":["192.0.2.1"]}"#);
        let mut found = before.clone();
        serde_json::from_str::<AnnouncedFrame>(&text).unwrap().apply(&mut found);
        assert_eq!(found, after);
        assert_eq!(AnnouncedFrame::between(&after, &after), None);
    }
}
