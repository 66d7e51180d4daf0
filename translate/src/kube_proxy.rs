//! `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1), by itself and in the ConfigMap of kubeadm.
//!
//! It says how one process on one machine works, so it makes no objects: what it means here are settings of an agent, and of a
//! Node what agents have no setting for.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{kinds::node::MARK_BIT_MAX, primitives::name::Name};
use serde_json::{Value, json};

use crate::{
    draft::Draft,
    json::{entries, scalar, text},
    parse::{Language, objects},
};

/// Where kubeadm keeps it.
const KEY: &str = "config.conf";
/// The kind.
const KIND: &str = "KubeProxyConfiguration";
/// The version that there is.
const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
/// Deepest nesting that is looked into; no setting is deeper.
const DEPTH_MAX: usize = 8;

/// Characters of a key that count; no setting has a longer one.
const KEY_CHARS_MAX: usize = 100;

/// What becomes of a setting wherever it is set.
enum Fate {
    /// Its value decides.
    Looked,
    /// It means the same here, without being set.
    Same(&'static str),
    /// It is left out.
    Ignored(&'static str),
    /// A part of it is had in another way.
    Approximated(&'static str),
}

use Fate::{Approximated, Ignored, Looked, Same};

const CONNTRACK: &str = "sizes and times of connection tracking are the machine's: set the sysctl nf_conntrack_*; `tidegate-agent \
                         doctor` says when they are too small";
const SYNC: &str = "changes are programmed at once and read back; nothing is written again by the clock";
const SERVER: &str = "agents speak to Tidegate: --api, --join-token-file";
const LOG: &str = "set --log, such as info or debug";
const WINDOWS: &str = "agents run on Linux";
const KERNEL_TIMES: &str = "the kernel's own times are left alone; set them with `ipvsadm --set`";
const DETECT: &str = "workloads are told by their networks: set --workload-cidr or --cluster-cidr";

/// Every field (v1alpha1, Kubernetes 1.36, and those that were there before); what begins with `*` stands for any key.
const FIELDS: &[(&str, Fate)] = &[
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
            "which addresses node ports answer at, nodePortAddresses says; docs/proxy-modes.md has the rest",
        ),
    ),
    ("iptables.syncPeriod", Ignored(SYNC)),
    ("iptables.minSyncPeriod", Ignored(SYNC)),
    ("nftables.syncPeriod", Ignored(SYNC)),
    ("nftables.minSyncPeriod", Ignored(SYNC)),
    ("ipvs.syncPeriod", Ignored(SYNC)),
    ("ipvs.minSyncPeriod", Ignored(SYNC)),
    ("ipvs.scheduler", Ignored("belongs to each Service here: set spec.scheduler")),
    ("ipvs.excludeCIDRs", Same("virtual servers of others are never touched")),
    ("ipvs.tcpTimeout", Ignored(KERNEL_TIMES)),
    ("ipvs.tcpFinTimeout", Ignored(KERNEL_TIMES)),
    ("ipvs.udpTimeout", Ignored(KERNEL_TIMES)),
    ("configSyncPeriod", Ignored(SYNC)),
    ("bindAddress", Ignored("addresses of the machine are found; --address names them")),
    ("bindAddressHardFail", Ignored("an agent that cannot listen does not start")),
    (
        "healthzBindAddress",
        Approximated(
            "/healthz is at --listen, beside /metrics; load balancers outside ask the health check node ports of Services",
        ),
    ),
    ("metricsBindAddress", Approximated("/metrics is at --listen, 127.0.0.1:7441 when left out")),
    ("enableProfiling", Ignored("there is no profiling endpoint")),
    ("showHiddenMetricsForVersion", Ignored("there are no hidden metrics")),
    ("oomScoreAdj", Approximated("set OOMScoreAdjust in the unit of the agent")),
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
    ("logging.flushFrequency", Ignored("nothing is held back")),
    ("logging.verbosity", Approximated(LOG)),
    ("logging.vmodule", Approximated(LOG)),
    ("logging.options", Ignored("one form each of text and JSON is written")),
    ("featureGates", Ignored("there are no feature gates")),
    ("winkernel", Ignored(WINDOWS)),
    ("windowsRunAsService", Ignored(WINDOWS)),
    ("portRange", Ignored("the control server has the range: --node-port-range")),
    ("resourceContainer", Ignored("set a slice in the unit of the agent")),
    ("udpIdleTimeout", Ignored("flows of UDP end as connection tracking says")),
];

/// Whether a ConfigMap is kubeadm's `kube-proxy`.
pub(crate) fn is_config_map(document: &Value) -> bool {
    document.pointer("/data").and_then(|data| data.get(KEY)).is_some()
}

/// A KubeProxyConfiguration, or the ConfigMap with it.
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
        draft.report.approximated("apiVersion", &format!("`{version}` is read as {API_VERSION}"));
    }
    let mut unset = Vec::new();
    walk(document, "", DEPTH_MAX, &mut |at, value| setting(draft, document, at, value, &mut unset));
    if !unset.is_empty() {
        draft.report.note("left at their defaults there", &unset.join(", "));
    }
}

/// Tells `found` of every setting: what a line of the list is about, or what has no more in it.
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

/// Whether a value is theirs for what is not given; kubeadm writes all of them.
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
        None => draft.report.ignored(at, "nothing here has this setting"),
    }
}

fn look(draft: &mut Draft, whole: &Value, at: &str, value: &Value) {
    let word = scalar(value);
    match at {
        "mode" => mode(draft, &word),
        "hostnameOverride" => match Name::parse(&word) {
            Ok(name) => put(draft, at, "node", json!(name)),
            Err(error) => draft.report.ignored(at, &format!("the name of a Node {error}")),
        },
        "clusterCIDR" => networks(draft, at, "cluster-cidr", word.split(',').map(str::trim)),
        "nodePortAddresses" => {
            let words: Vec<String> = value.as_array().into_iter().flatten().map(scalar).collect();
            if words.iter().any(|word| word == "primary") {
                let said = "`primary`: node ports answer at all addresses; list the networks of those that are meant";
                draft.report.ignored(at, said);
            } else {
                networks(draft, at, "node-port-addresses", words.iter().map(String::as_str));
            }
        }
        "iptables.masqueradeBit" | "nftables.masqueradeBit" => match value.as_u64() {
            _ if !is_of_mode(whole, at) => other_mode(draft, at),
            Some(bit) if bit <= u64::from(MARK_BIT_MAX) => put(draft, at, "masquerade-bit", json!(bit)),
            Some(_) | None => draft.report.ignored(at, "no bit from 0 to 31"),
        },
        "iptables.masqueradeAll" | "nftables.masqueradeAll" => match value.as_bool() {
            _ if !is_of_mode(whole, at) => other_mode(draft, at),
            Some(false) => draft.report.mapped(at, "false, as here"),
            Some(true) => {
                draft.report.approximated(
                    at,
                    "agents have no setting for it: set spec.proxy.masqueradeAll: true of each Node",
                );
            }
            None => draft.report.ignored(at, "neither true nor false"),
        },
        "ipvs.strictARP" => match value.as_bool() {
            Some(flag) => put(draft, at, "strict-arp", json!(flag)),
            None => draft.report.ignored(at, "neither true nor false"),
        },
        "logging.format" => match word.as_str() {
            "json" | "text" => put(draft, at, "log-format", json!(word)),
            _ => draft.report.ignored(at, "neither text nor json"),
        },
        "detectLocalMode" => match word.as_str() {
            "ClusterCIDR" => draft.report.mapped(at, "--cluster-cidr, where clusterCIDR is given"),
            "NodeCIDR" => {
                draft.report.approximated(
                    at,
                    "set --workload-cidr of each agent; traffic from any node's counts as local",
                );
            }
            _ => draft.report.ignored(at, DETECT),
        },
        // Looked at before.
        _ => {}
    }
}

fn mode(draft: &mut Draft, word: &str) {
    match word {
        "iptables" | "ipvs" | "nftables" | "userspace" => put(draft, "mode", "mode", json!(word)),
        "" => draft
            .report
            .approximated("mode", "left out: iptables there, nftables here; set --mode to have another"),
        "kernelspace" => draft.report.ignored("mode", WINDOWS),
        other => draft
            .report
            .ignored("mode", &format!("`{other}` is no mode: iptables, ipvs, nftables, userspace")),
    }
}

/// Whether a setting of iptables or nftables counts: ipvs mode takes those of iptables.
fn is_of_mode(whole: &Value, at: &str) -> bool {
    at.starts_with("nftables.") == (text(whole, "/mode") == "nftables")
}

fn other_mode(draft: &mut Draft, at: &str) {
    draft.report.ignored(at, "it does not count in this mode there");
}

fn networks<'a>(draft: &mut Draft, at: &str, setting: &'static str, words: impl Iterator<Item = &'a str>) {
    let parsed: Result<Vec<String>, String> = words.map(network).collect();
    match parsed {
        Ok(networks) => put(draft, at, setting, json!(networks)),
        Err(word) => draft.report.ignored(at, &format!("`{word}` is no network")),
    }
}

/// A network as agents take it; the word itself when it is none.
fn network(word: &str) -> Result<String, String> {
    let net = word.parse::<IpNet>().or_else(|_| word.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc().to_string()).map_err(|_| word.to_owned())
}

fn put(draft: &mut Draft, at: &str, setting: &'static str, value: Value) {
    let known = draft.agent_settings.get(setting);
    if known.is_some_and(|known| *known != value) {
        draft.report.ignored(at, &format!("another configuration of the input says --{setting} already"));
        return;
    }
    draft.report.mapped(at, &format!("--{setting} of the agent"));
    draft.agent_settings.insert(setting, value);
}
