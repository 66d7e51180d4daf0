//! `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1), standalone and in kubeadm's ConfigMap.
//!
//! The document configures one process on one machine, so no objects are created. The settings become agent
//! settings; for those without an agent setting, the report names the Node fields to set.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{kinds::node::MARK_BIT_MAX, primitives::name::Name};
use serde_json::{Value, json};

use crate::{
    draft::Draft,
    json::{entries, scalar, text},
    parse::{Language, objects},
};

/// Key of the KubeProxyConfiguration in kubeadm's ConfigMap.
const KEY: &str = "config.conf";
/// Kind of the supported document.
const KIND: &str = "KubeProxyConfiguration";
/// API version of the supported document.
const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// Maximum nesting depth; no setting is deeper.
const DEPTH_MAX: usize = 8;

/// Maximum number of characters of a key; no setting has a longer one.
const KEY_CHARS_MAX: usize = 100;

/// Translation of one setting of kube-proxy.
enum SettingMapping {
    /// Setting whose translation depends on its value.
    Looked,
    /// Setting that Tidegate always follows without configuration; contains a description of this behavior.
    Same(&'static str),
    /// Setting without effect in Tidegate; contains the reason for the report.
    Ignored(&'static str),
    /// Setting with a similar but not equal effect in Tidegate; contains the difference for the report.
    Approximated(&'static str),
}

use SettingMapping::{Approximated, Ignored, Looked, Same};

const CONNTRACK: &str = "connection tracking is configured on the machine: set the sysctls \
                         nf_conntrack_*; `tidegate-agent doctor` reports values that are too small";
const SYNC: &str = "changes are programmed immediately and verified by read-back; there is no periodic \
                    rewrite";
const SERVER: &str = "agents connect to Tidegate: --api, --join-token-file";
const LOG: &str = "set --log, such as info or debug";
const WINDOWS: &str = "agents run on Linux";
const KERNEL_TIMES: &str = "kernel timeouts are not changed; set them with `ipvsadm --set`";
const DETECT: &str = "workloads are identified by their networks: set --workload-cidr or --cluster-cidr";

/// Translation of each field by path (v1alpha1, Kubernetes 1.36, and removed fields); a trailing `*` matches
/// any key.
const FIELDS: &[(&str, SettingMapping)] = &[
    ("apiVersion", Looked),
    ("kind", Looked),
    ("mode", Looked),
    ("hostnameOverride", Looked),
    ("clusterCIDR", Looked),
    ("nodePortAddresses", Looked),
    ("iptables.masqueradeBit", Looked),
    ("iptables.masqueradeAll", Looked),
    ("nftables.masqueradeBit", Looked),
    ("nftables.masqueradeAll", Looked),
    ("ipvs.strictARP", Looked),
    ("logging.format", Looked),
    ("detectLocalMode", Looked),
    (
        "iptables.localhostNodePorts",
        Approximated(
            "nodePortAddresses selects the addresses of node ports; see docs/explanation/proxy-modes.md",
        ),
    ),
    ("iptables.syncPeriod", Ignored(SYNC)),
    ("iptables.minSyncPeriod", Ignored(SYNC)),
    ("nftables.syncPeriod", Ignored(SYNC)),
    ("nftables.minSyncPeriod", Ignored(SYNC)),
    ("ipvs.syncPeriod", Ignored(SYNC)),
    ("ipvs.minSyncPeriod", Ignored(SYNC)),
    ("ipvs.scheduler", Ignored("configured per Service: set spec.scheduler")),
    ("ipvs.excludeCIDRs", Same("virtual servers of others are never changed")),
    ("ipvs.tcpTimeout", Ignored(KERNEL_TIMES)),
    ("ipvs.tcpFinTimeout", Ignored(KERNEL_TIMES)),
    ("ipvs.udpTimeout", Ignored(KERNEL_TIMES)),
    ("configSyncPeriod", Ignored(SYNC)),
    ("bindAddress", Ignored("addresses of the machine are detected; override with --address")),
    ("bindAddressHardFail", Ignored("an agent that cannot listen does not start")),
    (
        "healthzBindAddress",
        Approximated(
            "/healthz is served at --listen together with /metrics; external load balancers use the \
             health check node ports of Services",
        ),
    ),
    ("metricsBindAddress", Approximated("/metrics is served at --listen (default: 127.0.0.1:7441)")),
    ("enableProfiling", Ignored("there is no profiling endpoint")),
    ("showHiddenMetricsForVersion", Ignored("there are no hidden metrics")),
    ("oomScoreAdj", Approximated("set OOMScoreAdjust in the agent's systemd unit")),
    ("detectLocal.bridgeInterface", Ignored(DETECT)),
    ("detectLocal.interfaceNamePrefix", Ignored(DETECT)),
    ("conntrack.maxPerCore", Ignored(CONNTRACK)),
    ("conntrack.min", Ignored(CONNTRACK)),
    ("conntrack.tcpEstablishedTimeout", Ignored(CONNTRACK)),
    ("conntrack.tcpCloseWaitTimeout", Ignored(CONNTRACK)),
    ("conntrack.tcpBeLiberal", Ignored(CONNTRACK)),
    ("conntrack.udpTimeout", Ignored(CONNTRACK)),
    ("conntrack.udpStreamTimeout", Ignored(CONNTRACK)),
    ("clientConnection.kubeconfig", Ignored(SERVER)),
    ("clientConnection.acceptContentTypes", Ignored(SERVER)),
    ("clientConnection.contentType", Ignored(SERVER)),
    ("clientConnection.qps", Ignored(SERVER)),
    ("clientConnection.burst", Ignored(SERVER)),
    ("logging.flushFrequency", Ignored("logs are not buffered")),
    ("logging.verbosity", Approximated(LOG)),
    ("logging.vmodule", Approximated(LOG)),
    ("logging.options", Ignored("text and JSON logs have no options")),
    ("featureGates", Ignored("there are no feature gates")),
    ("winkernel", Ignored(WINDOWS)),
    ("windowsRunAsService", Ignored(WINDOWS)),
    ("portRange", Ignored("configured on the control server: --node-port-range")),
    ("resourceContainer", Ignored("set a slice in the agent's systemd unit")),
    ("udpIdleTimeout", Ignored("UDP flows expire by connection tracking")),
];

/// Returns true if a document is the ConfigMap `kube-proxy` of kubeadm.
pub(crate) fn is_config_map(document: &Value) -> bool {
    document.pointer("/data").and_then(|data| data.get(KEY)).is_some()
}

/// Translates a KubeProxyConfiguration, or the ConfigMap that contains one, into agent settings of the draft.
pub(crate) fn document(draft: &mut Draft, document: &Value) {
    if text(document, "/kind") != "ConfigMap" {
        return configuration(draft, document);
    }
    for (key, value) in entries(document, "/data") {
        if key != KEY {
            draft.report.ignored(&format!("data.{key}"), SERVER);
            continue;
        }
        match objects(Language::Yaml, scalar(value).as_bytes()) {
            Ok(documents) => documents.iter().for_each(|document| configuration(draft, document)),
            Err(error) => {
                draft.report.ignored(&format!("data.{KEY}"), error.lines().next().unwrap_or_default());
            }
        }
    }
}

fn configuration(draft: &mut Draft, document: &Value) {
    let (kind, version) = (text(document, "/kind"), text(document, "/apiVersion"));
    if !kind.is_empty() && kind != KIND {
        draft.report.ignored("kind", &format!("`{kind}` is not {KIND}"));
        return;
    }
    if !version.is_empty() && version != API_VERSION {
        draft.report.approximated("apiVersion", &format!("`{version}` is treated as {API_VERSION}"));
    }
    let mut unset = Vec::new();
    walk(document, "", DEPTH_MAX, &mut |at, value| setting(draft, document, at, value, &mut unset));
    if !unset.is_empty() {
        draft.report.note("unset (default values)", &unset.join(", "));
    }
}

/// Calls `found` with the path and value of each setting below the path `at`. A setting is a path listed in
/// [`FIELDS`], or a value that is below no such path.
fn walk(value: &Value, at: &str, depth: usize, found: &mut impl FnMut(&str, &Value)) {
    let is_listed = FIELDS.iter().any(|(path, _)| *path == at);
    match value {
        Value::Object(fields) if depth > 0 && !is_listed => {
            for (key, value) in fields {
                let key: String = key.chars().take(KEY_CHARS_MAX).collect();
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                walk(value, &at, depth - 1, found);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => found(at, value),
    }
}

/// Returns true if kube-proxy treats the value as unset; kubeadm writes all fields, most of them with such a
/// value.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn setting(draft: &mut Draft, whole: &Value, at: &str, value: &Value, unset: &mut Vec<String>) {
    if is_unset(value) && at != "mode" {
        unset.push(at.to_owned());
        return;
    }
    match FIELDS.iter().find(|(path, _)| *path == at).map(|(_, fate)| fate) {
        Some(Looked) => look(draft, whole, at, value),
        Some(Same(words)) => draft.report.mapped(at, words),
        Some(Approximated(words)) => draft.report.approximated(at, words),
        Some(Ignored(words)) => draft.report.ignored(at, words),
        None => draft.report.ignored(at, "not supported"),
    }
}

fn look(draft: &mut Draft, whole: &Value, at: &str, value: &Value) {
    let word = scalar(value);
    match at {
        "mode" => mode(draft, &word),
        "hostnameOverride" => match Name::parse(&word) {
            Ok(name) => put(draft, at, "node", json!(name)),
            Err(error) => draft.report.ignored(at, &format!("invalid Node name: it {error}")),
        },
        "clusterCIDR" => networks(draft, at, "cluster-cidr", word.split(',').map(str::trim)),
        "nodePortAddresses" => {
            let words: Vec<String> = value.as_array().into_iter().flatten().map(scalar).collect();
            if words.iter().any(|word| word == "primary") {
                let said = "`primary`: node ports listen on all addresses; list the intended networks \
                            instead";
                draft.report.ignored(at, said);
            } else {
                networks(draft, at, "node-port-addresses", words.iter().map(String::as_str));
            }
        }
        "iptables.masqueradeBit" | "nftables.masqueradeBit" => match value.as_u64() {
            _ if !is_of_mode(whole, at) => other_mode(draft, at),
            Some(bit) if bit <= u64::from(MARK_BIT_MAX) => put(draft, at, "masquerade-bit", json!(bit)),
            Some(_) | None => draft.report.ignored(at, "not a bit number from 0 to 31"),
        },
        "iptables.masqueradeAll" | "nftables.masqueradeAll" => match value.as_bool() {
            _ if !is_of_mode(whole, at) => other_mode(draft, at),
            Some(false) => draft.report.mapped(at, "false is the default"),
            Some(true) => {
                draft
                    .report
                    .approximated(at, "no agent setting: set spec.proxy.masqueradeAll: true on each Node");
            }
            None => draft.report.ignored(at, "must be true or false"),
        },
        "ipvs.strictARP" => match value.as_bool() {
            Some(flag) => put(draft, at, "strict-arp", json!(flag)),
            None => draft.report.ignored(at, "must be true or false"),
        },
        "logging.format" => match word.as_str() {
            "json" | "text" => put(draft, at, "log-format", json!(word)),
            _ => draft.report.ignored(at, "must be text or json"),
        },
        "detectLocalMode" => match word.as_str() {
            "ClusterCIDR" => draft.report.mapped(at, "--cluster-cidr, if clusterCIDR is set"),
            "NodeCIDR" => {
                draft.report.approximated(
                    at,
                    "set --workload-cidr of each agent; traffic from any node's network is treated as local",
                );
            }
            _ => draft.report.ignored(at, DETECT),
        },
        // Already handled.
        _ => {}
    }
}

fn mode(draft: &mut Draft, word: &str) {
    match word {
        "iptables" | "ipvs" | "nftables" | "userspace" => put(draft, "mode", "mode", json!(word)),
        "" => draft.report.approximated(
            "mode",
            "left out: kube-proxy defaults to iptables, Tidegate to nftables; set \
                                   --mode to change it",
        ),
        "kernelspace" => draft.report.ignored("mode", WINDOWS),
        other => draft.report.ignored(
            "mode",
            &format!(
                "`{other}` is not a mode; modes are iptables, ipvs, nftables, \
                                       userspace"
            ),
        ),
    }
}

/// Returns true if the setting at path `at` has an effect in the proxy mode of the whole configuration; ipvs
/// mode uses the iptables settings too.
fn is_of_mode(whole: &Value, at: &str) -> bool {
    at.starts_with("nftables.") == (text(whole, "/mode") == "nftables")
}

fn other_mode(draft: &mut Draft, at: &str) {
    draft.report.ignored(at, "not effective in this mode of kube-proxy");
}

fn networks<'a>(draft: &mut Draft, at: &str, setting: &'static str, words: impl Iterator<Item = &'a str>) {
    let parsed: Result<Vec<String>, String> = words.map(network).collect();
    match parsed {
        Ok(networks) => put(draft, at, setting, json!(networks)),
        Err(word) => draft.report.ignored(at, &format!("`{word}` is not a network")),
    }
}

/// Parses a network, or an address as a /32 or /128 network, and returns it as CIDR text with the host bits
/// cleared. The error is the invalid input.
fn network(word: &str) -> Result<String, String> {
    let net = word.parse::<IpNet>().or_else(|_| word.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc().to_string()).map_err(|_| word.to_owned())
}

fn put(draft: &mut Draft, at: &str, setting: &'static str, value: Value) {
    let known = draft.agent_settings.get(setting);
    if known.is_some_and(|known| *known != value) {
        draft.report.ignored(at, &format!("another configuration of the input already sets --{setting}"));
        return;
    }
    draft.report.mapped(at, &format!("--{setting} of the agent"));
    draft.agent_settings.insert(setting, value);
}
