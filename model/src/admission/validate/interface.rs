//! Validation rules of interfaces that Workloads declare.

use crate::{
    kinds::{
        attachment::{AttachmentKind, INTERFACE_LENGTH_MAX},
        workload::{NETWORK_NAMESPACE_LENGTH_MAX, WorkloadInterface},
    },
    primitives::violation::{Violation, ViolationCode},
};

/// Prefix of the names of the agent's own interfaces.
const AGENT_PREFIX: &str = "tg";
/// Names that no declared interface can have: the loopback interface, and the directories of the kernel parameters of
/// all interfaces.
const RESERVED_NAMES: [&str; 3] = ["lo", "all", "default"];

pub(super) fn validate(interface: &WorkloadInterface, found: &mut Vec<Violation>) {
    let WorkloadInterface { network: _, kind, name, network_namespace, mac } = interface;
    let mut invalid = |field: &str, message: String| {
        found.push(Violation::new(format!("/spec/interface/{field}"), ViolationCode::Invalid, message));
    };
    if !is_file_name(name, INTERFACE_LENGTH_MAX) {
        invalid("name", file_name_rule(INTERFACE_LENGTH_MAX));
    } else if name.starts_with(AGENT_PREFIX) || RESERVED_NAMES.contains(&name.as_str()) {
        let names = RESERVED_NAMES.join(", ");
        invalid(
            "name",
            format!("must not begin with `{AGENT_PREFIX}`, and be none of {names}, not `{name}`"),
        );
    }
    match (kind, network_namespace) {
        (AttachmentKind::Veth, Some(namespace)) => {
            if !is_file_name(namespace, NETWORK_NAMESPACE_LENGTH_MAX) {
                invalid("networkNamespace", file_name_rule(NETWORK_NAMESPACE_LENGTH_MAX));
            }
        }
        (AttachmentKind::Veth, None) => {
            invalid("networkNamespace", "must be present for kind Veth".to_owned());
        }
        (AttachmentKind::Tap | AttachmentKind::Host, Some(_)) => {
            invalid("networkNamespace", "must be absent for kinds Tap and Host".to_owned());
        }
        (AttachmentKind::Tap | AttachmentKind::Host, None) => {}
    }
    if mac.as_ref().is_some_and(|mac| !is_unicast_mac(mac)) {
        let message = "must be the address of one station, such as `02:00:00:00:00:01`".to_owned();
        invalid("mac", message);
    }
}

/// True if the text consists of letters, digits, `_`, `.` and `-`, and begins with a letter or digit.
pub(super) fn is_file_name(text: &str, length_max: usize) -> bool {
    text.len() <= length_max
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '-'))
}

fn file_name_rule(length_max: usize) -> String {
    format!("must have 1 to {length_max} letters, digits, `_`, `.` and `-`, and begin with a letter or digit")
}

fn is_unicast_mac(text: &str) -> bool {
    let bytes: Option<Vec<_>> = text
        .split(':')
        .map(|part| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten())
        .collect();
    bytes.is_some_and(|bytes| {
        bytes.len() == 6
            && bytes.first().is_some_and(|first| first & 1 == 0)
            && bytes.iter().any(|byte| *byte != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_station_are_link_layer_addresses() {
        for good in ["02:00:00:00:00:01", "52:54:00:AB:cd:ef"] {
            assert!(is_unicast_mac(good), "{good}");
        }
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:001",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "+2:0:0:0:0:1",
        ] {
            assert!(!is_unicast_mac(bad), "{bad}");
        }
    }
}
