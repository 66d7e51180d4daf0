//! Messages for rejected requests to the read-only Kubernetes API. If there is a Tidegate command for the
//! purpose, the message names it. No I/O.

use http::Method;

use super::{catalogue::Resource, path::Target};

/// Write action that the read-only Kubernetes API rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusedAction {
    Create,
    Change,
    Delete,
}

/// Maximum length of an object name that a message repeats, in characters. A longer name is replaced by a
/// placeholder.
const NAME_LENGTH_MAX: usize = 253;

/// Returns the message for a rejected write, with the Tidegate command to use instead, if there is one.
pub(super) fn of_write(method: &Method, target: &Target<'_>) -> String {
    let deed = match *method {
        Method::DELETE => RefusedAction::Delete,
        Method::POST => RefusedAction::Create,
        _ => RefusedAction::Change,
    };
    format!("this view of Tidegate is read-only: {}", instead(deed, target))
}

/// Returns the message for an unsupported read request.
pub(super) fn of_read(target: &Target<'_>) -> String {
    match (target.resource, target.part) {
        (Some(Resource::Pods), Some(part)) => of_part(part),
        (Some(Resource::Events), None) => {
            "events cannot be watched here: `tidegate watch` follows changes".to_owned()
        }
        _ => "the server could not find the requested resource".to_owned(),
    }
}

/// Returns the message for a subresource that Pods have and Workloads lack, such as `log`.
fn of_part(part: &str) -> String {
    let part = shown(Some(part), "such part");
    format!("Tidegate does not run Workloads and has no {part} of this one: use the system that runs it")
}

fn instead(deed: RefusedAction, target: &Target<'_>) -> String {
    let Some(resource) = target.resource else { return of_unknown(target) };
    if let (Resource::Pods, Some(part)) = (resource, target.part.filter(|part| *part != "status")) {
        return of_part(part);
    }
    let name = shown(target.name, "NAME");
    let place = match target.namespace {
        Some(namespace) => format!(" -n {}", shown(Some(namespace), "NAMESPACE")),
        None => String::new(),
    };
    let write = |kind: &str| {
        format!("write a {kind} with `apiVersion: tidegate/v1`, and run `tidegate apply -f FILE`")
    };
    let delete = |kind: &str| format!("run `tidegate delete {kind} {name}{place}`");
    match (resource, deed) {
        (Resource::Services, RefusedAction::Delete) => delete("service"),
        (Resource::Services, RefusedAction::Create | RefusedAction::Change) => write("Service"),
        (Resource::Pods, RefusedAction::Delete) => delete("workload"),
        (Resource::Pods, RefusedAction::Create | RefusedAction::Change) => write("Workload"),
        (Resource::Endpoints | Resource::EndpointSlices, _) => {
            format!("endpoints follow from Workloads and EndpointSets; {}", write("EndpointSet"))
        }
        (Resource::Nodes, RefusedAction::Delete) => format!("run `tidegate delete node {name}`"),
        (Resource::Nodes, RefusedAction::Create) => {
            "run `tidegate node join-token NAME`, and start tidegate-agent there".to_owned()
        }
        (Resource::Nodes, RefusedAction::Change) => format!(
            "run `tidegate drain node {name}`, `tidegate maintenance node {name}` or `tidegate undrain node {name}`; for \
             anything else {}",
            write("Node")
        ),
        (Resource::Namespaces, RefusedAction::Create | RefusedAction::Change) => {
            "a namespace exists as soon as an object is in it; `tidegate apply -f FILE` creates one"
                .to_owned()
        }
        (Resource::Namespaces, RefusedAction::Delete) => {
            "a namespace is gone when no object is in it; `tidegate delete` removes objects".to_owned()
        }
        (Resource::Gateways, RefusedAction::Delete) => delete("gateway"),
        (Resource::Gateways, RefusedAction::Create | RefusedAction::Change) => write("Gateway"),
        (Resource::Ingresses | Resource::HttpRoutes, RefusedAction::Delete) => delete("httproute"),
        (Resource::Ingresses | Resource::HttpRoutes, RefusedAction::Create | RefusedAction::Change) => {
            write("HttpRoute")
        }
        (Resource::Events, _) => {
            "events are reported by agents; `tidegate describe node NAME` lists them".to_owned()
        }
    }
}

fn of_unknown(target: &Target<'_>) -> String {
    match target.plural {
        "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "selfsubjectreviews" => {
            "run `tidegate can-i` or `tidegate whoami`".to_owned()
        }
        "replicationcontrollers"
        | "replicasets"
        | "deployments"
        | "statefulsets"
        | "daemonsets"
        | "jobs"
        | "cronjobs" => {
            "Tidegate does not run Workloads; for each that runs elsewhere, write a Workload with \
             `apiVersion: tidegate/v1`, and run `tidegate apply -f FILE`"
                .to_owned()
        }
        _ => "run `tidegate apply -f FILE` or `tidegate delete`".to_owned(),
    }
}

/// Returns `name` if it is well-formed and thus safe to print, otherwise `placeholder`.
fn shown<'a>(name: Option<&'a str>, placeholder: &'a str) -> &'a str {
    let is_name = |text: &&str| {
        (1..=NAME_LENGTH_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    };
    name.filter(is_name).unwrap_or(placeholder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(method: Method, path: &str) -> String {
        of_write(&method, &Target::of(path))
    }

    #[test]
    fn every_write_is_answered_with_the_command_that_does_it() {
        let place = "/k8s/api/v1/namespaces/shop";
        let deleted = words(Method::DELETE, &format!("{place}/services/web"));
        assert!(deleted.ends_with("run `tidegate delete service web -n shop`"), "{deleted}");
        assert!(words(Method::POST, &format!("{place}/services")).contains("`tidegate apply -f FILE`"));
        assert!(words(Method::PATCH, "/k8s/api/v1/nodes/n1").contains("`tidegate drain node n1`"));
        assert!(words(Method::POST, "/k8s/api/v1/namespaces").contains("as soon as"));
        let made = words(Method::POST, &format!("{place}/replicationcontrollers"));
        assert!(made.contains("does not run Workloads"), "{made}");
        assert!(words(Method::PUT, "/k8s/x/y").contains("tidegate"));
    }

    #[test]
    fn what_is_no_name_is_not_repeated() {
        for odd in ["%60rm%60", "a%20b", "..%2f"] {
            let said = words(Method::DELETE, &format!("/k8s/api/v1/namespaces/a/pods/{odd}"));
            assert!(said.contains("workload NAME -n a") && !said.contains('%'), "{said}");
        }
    }
}
