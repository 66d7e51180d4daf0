//! Environment variables with the addresses and ports of Services, as kubelet sets them in containers.
//!
//! A Service contributes `{NAME}_SERVICE_HOST`, `{NAME}_SERVICE_PORT` and one `{NAME}_SERVICE_PORT_{PORT NAME}` for
//! each named port, and the variables of Docker container links: `{NAME}_PORT`, and four for each port. Headless
//! Services and Services of type ExternalName have no address and contribute nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        resource::{Kind, ServiceKey},
        service::{ServicePort, ServiceSpec},
    },
    primitives::{
        name::{Name, Namespace},
        quantity::Revision,
    },
};

/// Maximum size of all variables together in bytes, each counted as `NAME=VALUE` and a final zero byte: half of
/// the 2 MiB that Linux accepts for arguments and variables of a new program by default (`ARG_MAX`).
pub const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;
/// Namespace of the Service of the Kubernetes API server.
const API_NAMESPACE: &str = "default";
/// Name of the Service of the Kubernetes API server, whose variables all namespaces receive.
const API_SERVICE: &str = "kubernetes";

/// Selection of variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentFilter {
    /// Names of the Services whose variables are returned; `None` selects all.
    pub names: Option<BTreeSet<Name>>,
    /// True if the variables of Docker container links are returned too.
    pub links: bool,
}

/// Environment variables of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Namespace whose Services the variables describe.
    pub namespace: Namespace,
    /// Revision of the state from which the variables were computed.
    pub revision: Revision,
    /// Variables with distinct names, in the order of their Services and ports.
    pub variables: Vec<Variable>,
    /// Variables that several Services define. The value of the last of these Services, by name, is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<VariableConflict>,
}

/// Environment variable that describes a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Name of the variable: upper-case letters, digits and `_`.
    #[schema(example = "WEB_SERVICE_HOST")]
    pub name: String,
    /// Value of the variable: an address, a port, a protocol or a URL, without spaces and line breaks.
    #[schema(example = "10.96.0.10")]
    pub value: String,
    /// Service that the variable describes.
    pub service: ServiceKey,
}

/// Variable that several Services define.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableConflict {
    /// Name of the variable.
    #[schema(example = "A_B_SERVICE_HOST")]
    pub name: String,
    /// Service whose value is used.
    pub used: ServiceKey,
    /// Service whose value is left out.
    pub ignored: ServiceKey,
}

impl Environment {
    /// Computes the variables of a namespace: those of its Services by name, then those of Service
    /// `default/kubernetes`, unless the namespace has a Service of the same name itself.
    #[must_use]
    pub fn of(snapshot: &Snapshot, namespace: &Namespace, filter: &EnvironmentFilter) -> Self {
        let own = snapshot.list(Kind::Service, Some(namespace), None);
        let own = own.filter(|object| match &filter.names {
            Some(names) => names.contains(&object.metadata.name),
            None => true,
        });
        let own =
            own.filter_map(|object| Some((ServiceKey::of_object_key(&object.key())?, object.as_service()?)));
        let mut services: Vec<_> = own.collect();
        let api = api_service()
            .filter(|key| services.iter().all(|(own, _)| own.name != key.name) && filter.names.is_none());
        if let Some((key, object)) = api.and_then(|key| snapshot.service(&key).map(|object| (key, object))) {
            services.extend(object.as_service().map(|spec| (key, spec)));
        }
        let mut environment = Self {
            namespace: namespace.clone(),
            revision: snapshot.revision(),
            variables: Vec::new(),
            conflicts: Vec::new(),
        };
        let mut places = BTreeMap::new();
        for (key, spec) in &services {
            for (name, value) in variables(key, spec, filter.links) {
                environment.add(&mut places, Variable { name, value, service: key.clone() });
            }
        }
        environment
    }

    /// Adds a variable. A variable of the same name of another Service is replaced, at its place.
    fn add(&mut self, places: &mut BTreeMap<String, usize>, variable: Variable) {
        let Some(&place) = places.get(&variable.name) else {
            places.insert(variable.name.clone(), self.variables.len());
            self.variables.push(variable);
            return;
        };
        let present = &mut self.variables[place];
        if present.service != variable.service {
            self.conflicts.push(VariableConflict {
                name: variable.name.clone(),
                used: variable.service.clone(),
                ignored: present.service.clone(),
            });
        }
        *present = variable;
    }

    /// Returns the size of the variables in bytes, as the kernel counts them: `NAME=VALUE` and a zero byte each.
    #[must_use]
    pub fn size(&self) -> usize {
        self.variables.iter().map(|variable| variable.name.len() + variable.value.len() + 2).sum()
    }

    /// Returns the variables as lines `NAME=VALUE`, for `docker run --env-file` and dotenv files. No value needs
    /// quotes.
    #[must_use]
    pub fn to_dotenv(&self) -> String {
        let mut text = String::with_capacity(self.size());
        for Variable { name, value, .. } in &self.variables {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }

    /// Returns the variables as texts `NAME=VALUE`, the format of the field `Env` in the Docker Engine API.
    #[must_use]
    pub fn to_docker(&self) -> Vec<String> {
        self.variables.iter().map(|variable| format!("{}={}", variable.name, variable.value)).collect()
    }
}

/// Returns the key of the Service of the Kubernetes API server.
fn api_service() -> Option<ServiceKey> {
    Some(ServiceKey {
        namespace: Namespace::parse(API_NAMESPACE).ok()?,
        name: Name::parse(API_SERVICE).ok()?,
    })
}

/// Returns the variables of one Service, in the order of kubelet.
fn variables(key: &ServiceKey, spec: &ServiceSpec, links: bool) -> Vec<(String, String)> {
    let Some((address, first)) = spec.cluster_addresses().next().zip(spec.ports.first()) else {
        return Vec::new();
    };
    let prefix = prefix(&key.name);
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), address.to_string()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in &spec.ports {
        let name = port.name.as_ref().map(|name| variable_name(name.as_str()));
        all.extend(name.map(|name| (format!("{prefix}_SERVICE_PORT_{name}"), port.port.to_string())));
    }
    if links {
        all.push((format!("{prefix}_PORT"), url(address, first)));
        all.extend(spec.ports.iter().flat_map(|port| link_variables(&prefix, address, port)));
    }
    all
}

/// Returns the variables of a Docker container link for one port.
fn link_variables(prefix: &str, address: IpAddr, port: &ServicePort) -> [(String, String); 4] {
    let prefix = format!("{prefix}_PORT_{}_{}", port.port, port.protocol.as_str());
    [
        (prefix.clone(), url(address, port)),
        (format!("{prefix}_PROTO"), port.protocol.as_str().to_ascii_lowercase()),
        (format!("{prefix}_PORT"), port.port.to_string()),
        (format!("{prefix}_ADDR"), address.to_string()),
    ]
}

fn url(address: IpAddr, port: &ServicePort) -> String {
    let protocol = port.protocol.as_str().to_ascii_lowercase();
    format!("{protocol}://{}", SocketAddr::new(address, port.port.get()))
}

/// Returns the beginning of the names of the variables of a Service: its name with `_` before a leading digit, because
/// shells do not accept a variable whose name begins with a digit. kubelet leaves the digit at the beginning.
fn prefix(service: &Name) -> String {
    let name = variable_name(service.as_str());
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Returns the name of a Service or port as part of a variable name: in upper case, with `_` in place of `-` and `.`.
fn variable_name(name: &str) -> String {
    name.to_ascii_uppercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_follow_the_rules_of_shells() {
        assert_eq!(variable_name("x.y-z"), "X_Y_Z");
        assert_eq!(variable_name("1a"), "1A");
        assert_eq!(prefix(&Name::parse("1a").unwrap()), "_1A");
        assert_eq!(prefix(&Name::parse("web").unwrap()), "WEB");
    }
}
