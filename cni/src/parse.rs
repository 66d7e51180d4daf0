//! Parser of an invocation: environment variables and the configuration on standard input. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use attach_socket::{AttachmentKey, PATH_DEFAULT};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{CniCode, CniError};

/// Maximum size of the configuration in bytes. A list of valid attachments takes 300 bytes for each at most.
pub const CONFIG_BYTES_MAX: usize = 4 << 20;
/// Maximum length of the variable `CNI_ARGS` in bytes.
pub const ARGS_BYTES_MAX: usize = 64 << 10;
/// Supported versions of the specification. Earlier ones have another format of results.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Version of answers if the configuration has none that is supported.
pub const VERSION_LATEST: &str = "1.1.0";

/// Operation of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Adds a container to the network.
    Add {
        /// Identity of the attachment.
        key: AttachmentKey,
        /// Path of the network namespace.
        netns: String,
        /// Workload that the runtime names.
        workload: WorkloadArgs,
        /// Settings of the resolver for the runtime.
        dns: DnsConfig,
    },
    /// Removes a container from the network.
    Del(AttachmentKey),
    /// Checks that an attachment is as it was added.
    Check(AttachmentKey),
    /// Removes the attachments that are not listed; `None` if the runtime gives no list, which removes nothing.
    Gc(Option<BTreeSet<AttachmentKey>>),
    /// Reports if ADD requests can be served.
    Status,
    /// Reports the supported versions.
    Version,
}

/// Workload that a runtime names in `CNI_ARGS`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadArgs {
    /// Namespace (`K8S_POD_NAMESPACE`).
    pub namespace: Option<String>,
    /// Name (`K8S_POD_NAME`).
    pub name: Option<String>,
    /// Labels of the field `args.cni.labels` of the configuration.
    pub labels: BTreeMap<String, String>,
}

/// Invocation of the plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Invocation {
    /// Requested operation.
    pub operation: Operation,
    /// Version of the configuration, one of [`VERSIONS`].
    pub version: &'static str,
    /// Name of the network configuration, under which the attachments are managed.
    pub name: String,
    /// Path of the agent's socket.
    pub socket: String,
    /// Name of the workload network; `None` for the only one.
    pub network: Option<String>,
    /// Result of the plugin before this one, or of ADD.
    pub prev_result: Option<Value>,
}

/// Settings of the resolver of containers, which the runtime writes to their `resolv.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsConfig {
    /// Addresses of name servers, in the order of their use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// Local domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains that are appended to short names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options, such as `ndots:5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Configuration on standard input. Other fields belong to the runtime and are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkConfig {
    cni_version: Option<String>,
    name: Option<String>,
    socket: Option<String>,
    network: Option<String>,
    prev_result: Option<Value>,
    args: Option<ConfigArgs>,
    dns: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments", default, deserialize_with = "present")]
    valid_attachments: Option<Value>,
}

/// Deserializes a field that is present, so that `null` differs from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Default, Deserialize)]
struct ConfigArgs {
    cni: Option<CniArgs>,
}

#[derive(Debug, Default, Deserialize)]
struct CniArgs {
    #[serde(default)]
    labels: Vec<LabelArg>,
}

#[derive(Debug, Deserialize)]
struct LabelArg {
    key: String,
    value: String,
}

#[derive(Debug, Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

/// Returns the version in which an error is answered.
#[must_use]
pub fn answer_version(config: &[u8]) -> &'static str {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        cni_version: String,
    }
    let found = serde_json::from_slice::<Versioned>(config).ok();
    found.and_then(|found| supported(&found.cni_version)).unwrap_or(VERSION_LATEST)
}

fn supported(version: &str) -> Option<&'static str> {
    VERSIONS.into_iter().find(|known| *known == version)
}

/// Parses an invocation. `variable` returns the value of an environment variable.
///
/// # Errors
/// Returns an error of the specification that names the variable or field.
pub fn parse(variable: impl Fn(&str) -> Option<String>, config: &[u8]) -> Result<Invocation, CniError> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let command = variable("CNI_COMMAND").ok_or_else(|| missing("CNI_COMMAND"))?;
    if config.len() > CONFIG_BYTES_MAX {
        return Err(CniError::new(CniCode::Decode, "the configuration is too large", CONFIG_BYTES_MAX));
    }
    let config: NetworkConfig = serde_json::from_slice(config)
        .map_err(|error| CniError::new(CniCode::Decode, "the configuration cannot be decoded", error))?;
    if command == "VERSION" {
        // The version of the request need not be supported.
        let version = config.cni_version.as_deref().and_then(supported).unwrap_or(VERSION_LATEST);
        return Ok(invocation(Operation::Version, version, String::new(), config));
    }
    let text = config.cni_version.as_deref().unwrap_or("0.1.0");
    let version = supported(text).ok_or_else(|| {
        let details = format!("supported are {}", VERSIONS.join(", "));
        CniError::new(CniCode::IncompatibleVersion, format!("cniVersion `{text}` is not supported"), details)
    })?;
    let name = config.name.clone().unwrap_or_default();
    let probe = AttachmentKey { container_id: name.clone(), interface: "eth0".to_owned() };
    if probe.fault().is_some() {
        let details = "it begins with a letter or digit and contains letters, digits, `_`, `.` and `-`";
        return Err(CniError::new(
            CniCode::InvalidConfig,
            "`name` of the configuration is missing or invalid",
            details,
        ));
    }
    let operation = match command.as_str() {
        "ADD" => Operation::Add {
            key: key(&variable)?,
            netns: variable("CNI_NETNS").ok_or_else(|| missing("CNI_NETNS"))?,
            workload: workload(&variable, config.args.as_ref())?,
            dns: config.dns.as_ref().map(resolver).transpose()?.unwrap_or_default(),
        },
        "DEL" => Operation::Del(key(&variable)?),
        "CHECK" => Operation::Check(key(&variable)?),
        "GC" => Operation::Gc(config.valid_attachments.as_ref().map(valid).transpose()?),
        "STATUS" => Operation::Status,
        other => {
            let message = format!("CNI_COMMAND `{other}` is unknown");
            return Err(CniError::new(CniCode::InvalidEnvironment, message, "CNI_COMMAND"));
        }
    };
    Ok(invocation(operation, version, name, config))
}

fn invocation(
    operation: Operation,
    version: &'static str,
    name: String,
    config: NetworkConfig,
) -> Invocation {
    let NetworkConfig { network, prev_result, socket, .. } = config;
    let socket = socket.unwrap_or_else(|| PATH_DEFAULT.to_owned());
    Invocation { operation, version, name, socket, network, prev_result }
}

fn missing(name: &str) -> CniError {
    CniError::new(CniCode::InvalidEnvironment, format!("the environment variable {name} is missing"), name)
}

fn key(variable: &impl Fn(&str) -> Option<String>) -> Result<AttachmentKey, CniError> {
    let key = AttachmentKey {
        container_id: variable("CNI_CONTAINERID").ok_or_else(|| missing("CNI_CONTAINERID"))?,
        interface: variable("CNI_IFNAME").ok_or_else(|| missing("CNI_IFNAME"))?,
    };
    match key.fault() {
        None => Ok(key),
        Some(fault) => {
            let message = "CNI_CONTAINERID or CNI_IFNAME is invalid";
            Err(CniError::new(CniCode::InvalidEnvironment, message, fault))
        }
    }
}

/// Returns the settings of the resolver in the field `dns` of a configuration.
fn resolver(dns: &Value) -> Result<DnsConfig, CniError> {
    DnsConfig::deserialize(dns).map_err(|error| {
        CniError::new(CniCode::InvalidConfig, "`dns` of the configuration is invalid", error)
    })
}

/// Returns the attachments that a garbage collection keeps. One invalid entry makes the list invalid: a shorter list would
/// remove an attachment that is in use.
fn valid(list: &Value) -> Result<BTreeSet<AttachmentKey>, CniError> {
    let invalid = |reason| {
        let message = "`cni.dev/valid-attachments` must be a list of objects with `containerID` and `ifname`; leave \
                       it out to keep all attachments";
        CniError::new(CniCode::InvalidConfig, message, reason)
    };
    let list = Vec::<ValidAttachment>::deserialize(list).map_err(invalid)?;
    let mut keys = BTreeSet::new();
    for ValidAttachment { container_id, ifname } in list {
        let key = AttachmentKey { container_id, interface: ifname };
        if let Some(fault) = key.fault() {
            let message = "`cni.dev/valid-attachments` has an invalid entry";
            return Err(CniError::new(CniCode::InvalidConfig, message, fault));
        }
        keys.insert(key);
    }
    Ok(keys)
}

fn workload(
    variable: &impl Fn(&str) -> Option<String>,
    args: Option<&ConfigArgs>,
) -> Result<WorkloadArgs, CniError> {
    let text = variable("CNI_ARGS").unwrap_or_default();
    if text.len() > ARGS_BYTES_MAX {
        return Err(CniError::new(CniCode::InvalidEnvironment, "CNI_ARGS is too long", "CNI_ARGS"));
    }
    let labels = args.and_then(|args| args.cni.as_ref()).map(|cni| cni.labels.as_slice()).unwrap_or_default();
    let mut found = WorkloadArgs {
        labels: labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect(),
        ..WorkloadArgs::default()
    };
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(CniError::new(
                CniCode::InvalidEnvironment,
                "CNI_ARGS has a pair without `=`",
                "CNI_ARGS",
            ));
        };
        match name {
            "K8S_POD_NAMESPACE" => found.namespace = Some(value.to_owned()),
            "K8S_POD_NAME" => found.name = Some(value.to_owned()),
            // Arguments of other plugins in the list.
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: &str = r#"{"cniVersion": "1.1.0", "name": "pods", "type": "tidegate-cni"}"#;

    fn invoke(variables: &[(&str, &str)], config: &str) -> Result<Invocation, CniError> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        parse(find, config.as_bytes())
    }

    const ADD: [(&str, &str); 4] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/run/netns/x"),
    ];

    #[test]
    fn an_invocation_has_the_pod_and_the_labels_of_the_runtime() {
        let mut variables = ADD.to_vec();
        variables
            .push(("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_UID=1"));
        let config = r#"{"cniVersion": "1.0.0", "name": "pods", "network": "blue", "capabilities": {"mac": true},
            "args": {"cni": {"labels": [{"key": "app", "value": "web"}]}}}"#;
        let found = invoke(&variables, config).unwrap();
        let Operation::Add { key, netns, workload, dns } = found.operation else { panic!("ADD") };
        assert_eq!(dns, DnsConfig::default());
        assert_eq!((key.to_string().as_str(), netns.as_str()), ("c1/eth0", "/run/netns/x"));
        assert_eq!((workload.namespace.as_deref(), workload.name.as_deref()), (Some("shop"), Some("web-1")));
        assert_eq!(workload.labels, BTreeMap::from([("app".to_owned(), "web".to_owned())]));
        assert_eq!((found.network.as_deref(), found.version), (Some("blue"), "1.0.0"));
        assert_eq!(found.socket, PATH_DEFAULT);
    }

    #[test]
    fn settings_of_the_resolver_are_addresses_and_known_fields() {
        let with = |dns: &str| {
            let config = format!(r#"{{"cniVersion": "1.1.0", "name": "pods", "dns": {dns}}}"#);
            match invoke(&ADD, &config).map(|found| found.operation) {
                Ok(Operation::Add { dns, .. }) => Ok(dns),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err((error.code.number(), error.details)),
            }
        };
        let found = with(r#"{"nameservers": ["10.96.0.10"], "options": ["ndots:5"]}"#).unwrap();
        assert_eq!((found.nameservers.len(), found.options.len()), (1, 1));
        for (dns, field) in [(r#"{"nameservers": ["ns1"]}"#, "IP address"), (r#"{"servers": []}"#, "servers")]
        {
            let (code, details) = with(dns).unwrap_err();
            assert!(code == 7 && details.contains(field), "{code} {details}");
        }
        // An invalid field does not keep a container from being removed.
        let del = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0")];
        assert!(invoke(&del, r#"{"cniVersion": "1.1.0", "name": "pods", "dns": 7}"#).is_ok());
    }

    #[test]
    fn each_fault_has_the_code_of_the_specification_and_names_its_place() {
        let config = |text: &'static str| text;
        let without = |name: &str| ADD.into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>();
        for name in ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"] {
            let error = invoke(&without(name), CONFIG).unwrap_err();
            assert_eq!(error.code.number(), 4);
            assert!(error.message.contains(name), "{error:?}");
        }
        let with = |name: &'static str, value: &'static str| {
            let mut variables = without(name);
            variables.push((name, value));
            variables
        };
        for (variables, text, code) in [
            (with("CNI_IFNAME", "a/b"), CONFIG, 4),
            (with("CNI_CONTAINERID", "../x"), CONFIG, 4),
            (with("CNI_COMMAND", "REMOVE"), CONFIG, 4),
            (with("CNI_ARGS", "x"), CONFIG, 4),
            (ADD.to_vec(), config("{"), 6),
            (ADD.to_vec(), config("[]"), 6),
            (ADD.to_vec(), config(r#"{"name": "pods"}"#), 1),
            (ADD.to_vec(), config(r#"{"cniVersion": "0.2.0", "name": "pods"}"#), 1),
            (ADD.to_vec(), config(r#"{"cniVersion": "1.1.0"}"#), 7),
            (
                with("CNI_COMMAND", "GC"),
                config(
                    r#"{"cniVersion": "1.1.0", "name": "pods", "cni.dev/valid-attachments": [{"containerID": "", "ifname": "eth0"}]}"#,
                ),
                7,
            ),
        ] {
            assert_eq!(invoke(&variables, text).unwrap_err().code.number(), code, "{variables:?} {text}");
        }
        // An absent list is not an empty one.
        let gc = |list: &str| {
            let config = format!(r#"{{"cniVersion": "1.1.0", "name": "pods"{list}}}"#);
            invoke(&[("CNI_COMMAND", "GC")], &config).map(|found| found.operation)
        };
        assert_eq!(gc("").unwrap(), Operation::Gc(None));
        assert_eq!(gc(r#", "cni.dev/valid-attachments": []"#).unwrap(), Operation::Gc(Some(BTreeSet::new())));
        for other in ["null", "{}", "[null]", r#"[{"containerID": "c1"}]"#] {
            let error = gc(&format!(r#", "cni.dev/valid-attachments": {other}"#)).unwrap_err();
            assert_eq!(error.code.number(), 7, "{other}: {error:?}");
            assert!(error.message.contains("cni.dev/valid-attachments"), "{error:?}");
        }
        // A version that is not supported can still be asked for.
        let version = invoke(&[("CNI_COMMAND", "VERSION")], r#"{"cniVersion": "9.0.0"}"#).unwrap();
        assert_eq!(version.operation, Operation::Version);
        // DEL needs no network namespace.
        let mut del = without("CNI_NETNS");
        del[0] = ("CNI_COMMAND", "DEL");
        assert!(matches!(invoke(&del, CONFIG).unwrap().operation, Operation::Del(_)));
    }

    proptest! {
        /// Any input leads to an invocation or an error, without a panic; a key is always valid.
        #[test]
        fn any_input_is_parsed_or_refused(
            command in prop::sample::select(vec!["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "", "x"]),
            values in prop::collection::vec("[ -~]{0,24}|\\PC{0,6}|eth0", 4),
            config in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..64),
                "[{\\[\"a-zA-Z:,0-9.}\\]]{0,40}".prop_map(String::into_bytes),
                ("0.4.0|1.1.0|2", "[a-z]{0,4}|\\PC{0,4}", "[ -~]{0,16}").prop_map(|(version, name, id)| {
                    let list = serde_json::json!([{"containerID": id, "ifname": "eth0"}]);
                    serde_json::json!({"cniVersion": version, "name": name, "cni.dev/valid-attachments": list})
                        .to_string()
                        .into_bytes()
                }),
            ],
        ) {
            let find = |name: &str| match name {
                "CNI_COMMAND" => Some(command.to_owned()),
                "CNI_CONTAINERID" => values.first().cloned(),
                "CNI_IFNAME" => values.get(1).cloned(),
                "CNI_NETNS" => values.get(2).cloned(),
                "CNI_ARGS" => values.get(3).cloned(),
                _ => None,
            };
            let _ = answer_version(&config);
            match parse(find, &config).map(|found| found.operation) {
                Ok(Operation::Add { key, .. } | Operation::Del(key) | Operation::Check(key)) => {
                    prop_assert_eq!(key.fault(), None);
                }
                Ok(Operation::Gc(keys)) => {
                    prop_assert!(keys.iter().flatten().all(|key| key.fault().is_none()));
                }
                Ok(Operation::Status | Operation::Version) => {}
                Err(error) => prop_assert!(error.code.number() > 0),
            }
        }
    }
}
