//! Import of MetalLB's BGP settings: peers, BFD profiles and named communities. Resources and ConfigMap
//! differ only in the spelling of these fields.

use std::net::IpAddr;

use model::{
    kinds::selector::Selector,
    primitives::{community::Community, name::Name},
};
use serde_json::{Map, Value, json};

use crate::json::{items, scalar, text};
use crate::{draft::Draft, fields::Fields, pool, report::Report};

const NODE_LABELS: &str = "matches labels of Tidegate Nodes, which have none by themselves: `tidegate label node NAME KEY=VALUE` sets them";

/// Spelling of field names in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Resource fields in camel case, such as `holdTime`.
    Resource,
    /// ConfigMap fields with hyphens, such as `hold-time`.
    ConfigMap,
}

/// Resource field names with their ConfigMap spelling.
const CONFIG_MAP: [(&str, &str); 22] = [
    ("myASN", "my-asn"),
    ("peerASN", "peer-asn"),
    ("peerAddress", "peer-address"),
    ("peerPort", "peer-port"),
    ("sourceAddress", "source-address"),
    ("holdTime", "hold-time"),
    ("keepaliveTime", "keepalive-time"),
    ("connectTime", "connect-time"),
    ("routerID", "router-id"),
    ("nodeSelectors", "node-selectors"),
    ("bfdProfile", "bfd-profile"),
    ("ebgpMultiHop", "ebgp-multihop"),
    ("receiveInterval", "receive-interval"),
    ("transmitInterval", "transmit-interval"),
    ("detectMultiplier", "detect-multiplier"),
    ("echoInterval", "echo-interval"),
    ("echoMode", "echo-mode"),
    ("passiveMode", "passive-mode"),
    ("minimumTtl", "minimum-ttl"),
    ("aggregationLength", "aggregation-length"),
    ("aggregationLengthV6", "aggregation-length-v6"),
    ("localPref", "localpref"),
];

impl Spelling {
    fn of(self, key: &'static str) -> &'static str {
        let other = CONFIG_MAP.iter().find(|(resource, _)| self == Self::ConfigMap && *resource == key);
        other.map_or(key, |(_, config_map)| config_map)
    }
}

/// Tidegate object under construction, with the fields of its MetalLB source that have not been translated
/// yet.
pub(crate) struct Work<'a> {
    pub(crate) fields: Fields<'a>,
    spelling: Spelling,
    /// Display name, such as `bgppeer/router`.
    pub(crate) target: String,
    pub(crate) spec: Map<String, Value>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(fields: Fields<'a>, spelling: Spelling, target: String) -> Self {
        Self { fields, spelling, target, spec: Map::new() }
    }

    pub(crate) fn path(&self, key: &'static str) -> String {
        self.fields.path(self.spelling.of(key))
    }

    pub(crate) fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.fields.take(self.spelling.of(key))
    }

    fn flag(&mut self, key: &'static str, careful: bool, report: &mut Report) -> Option<bool> {
        self.fields.flag(self.spelling.of(key), careful, report)
    }

    pub(crate) fn put(&mut self, key: &'static str, ours: &str, value: Value, report: &mut Report) {
        report.mapped(&self.path(key), &format!("{ours} of {}", self.target));
        self.spec.insert(ours.to_owned(), value);
    }

    /// Copies the value of the MetalLB field `key` unchanged to the Tidegate field `ours`, and reports the
    /// translation. The value is validated later, when the finished object is decoded.
    pub(crate) fn carry(&mut self, key: &'static str, ours: &str, report: &mut Report) {
        if let Some(value) = self.take(key) {
            self.put(key, ours, value.clone(), report);
        }
    }

    /// Copies the boolean MetalLB field `key` to the Tidegate field `ours`, and reports the translation. An
    /// invalid value is copied as false.
    fn carry_flag(&mut self, key: &'static str, ours: &str, report: &mut Report) {
        if let Some(flag) = self.flag(key, false, report) {
            self.put(key, ours, json!(flag), report);
        }
    }

    /// Converts the duration in the MetalLB field `key` to whole seconds, rounded up, and stores them in the
    /// Tidegate field of the same name. An invalid duration is reported and left out.
    fn carry_seconds(&mut self, key: &'static str, report: &mut Report) {
        let Some(value) = self.take(key) else { return };
        let at = self.path(key);
        match milliseconds(&scalar(value)) {
            Some(time) if time % 1000 == 0 => self.put(key, key, json!(time / 1000), report),
            Some(time) => {
                let seconds = time.div_ceil(1000);
                report.approximated(
                    &at,
                    &format!("{key}: {seconds} of {}, rounded up to whole seconds", self.target),
                );
                self.spec.insert(key.to_owned(), json!(seconds));
            }
            None => report.ignored(&at, "not a duration such as 90s or 1m30s"),
        }
    }

    /// Translates the node selectors of a MetalLB peer or advertisement.
    pub(crate) fn node_selectors(&mut self, report: &mut Report) -> Result<(), String> {
        let Some(value) = self.take("nodeSelectors") else { return Ok(()) };
        let at = self.path("nodeSelectors");
        let mut value = value.clone();
        if self.spelling == Spelling::ConfigMap {
            for selector in value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                for (theirs, ours) in
                    [("match-labels", "matchLabels"), ("match-expressions", "matchExpressions")]
                {
                    if let Some(entries) = selector.remove(theirs) {
                        selector.insert(ours.to_owned(), entries);
                    }
                }
            }
        }
        let selectors: Vec<Selector> =
            serde_json::from_value(value).map_err(|error| format!("{at}: {error}"))?;
        if !selectors.is_empty() {
            report.approximated(&at, NODE_LABELS);
            self.spec.insert("nodeSelectors".to_owned(), json!(selectors));
        }
        Ok(())
    }

    pub(crate) fn done(self, report: &mut Report) -> Map<String, Value> {
        self.fields.rest(report);
        self.spec
    }
}

/// Translates a BGPPeer resource.
pub(crate) fn peer_object(draft: &mut Draft, document: &Value) {
    let name = text(document, "/metadata/name");
    let Some(name) = pool::name(&name, "metadata.name", &mut draft.report) else { return };
    let fields = Fields::of(document.get("spec").unwrap_or(&Value::Null), "spec");
    peer(draft, name, fields, Spelling::Resource);
}

/// Translates a MetalLB peer to the BgpPeer `name`.
pub(crate) fn peer(draft: &mut Draft, name: Name, fields: Fields<'_>, spelling: Spelling) {
    let at = fields.path("");
    let at = at.trim_end_matches('.');
    if draft.peers.contains_key(&name) {
        draft.report.ignored(at, &format!("duplicate peer {name}; it is left out"));
        return;
    }
    let work = Work::new(fields, spelling, format!("bgppeer/{name}"));
    match peer_spec(draft, work) {
        Ok(spec) => drop(draft.peers.insert(name, spec)),
        Err(reason) => draft.report.ignored(at, &format!("the peer is left out: {reason}")),
    }
}

fn peer_spec(draft: &mut Draft, mut work: Work<'_>) -> Result<Map<String, Value>, String> {
    let report = &mut draft.report;
    if work.take("vrf").is_some_and(|vrf| !scalar(vrf).is_empty()) {
        return Err(format!(
            "{}: sessions in a VRF are not supported, and the address may be used in another network",
            work.path("vrf")
        ));
    }
    work.node_selectors(report)?;
    for (theirs, ours) in [
        ("peerAddress", "peerAddress"),
        ("interface", "interface"),
        ("peerPort", "peerPort"),
        ("sourceAddress", "sourceAddress"),
        ("myASN", "localASN"),
        ("peerASN", "peerASN"),
        ("dynamicASN", "peerASN"),
    ] {
        // 0 and the empty string mean unset in MetalLB.
        if let Some(value) = work.take(theirs).filter(|value| !matches!(scalar(value).as_str(), "" | "0")) {
            work.put(theirs, ours, value.clone(), report);
        }
    }
    for key in ["holdTime", "keepaliveTime", "connectTime"] {
        work.carry_seconds(key, report);
    }
    multi_hop(&mut work, report);
    password(&mut work, report);
    if work.flag("enableGracefulRestart", false, report) == Some(true) {
        work.put("enableGracefulRestart", "gracefulRestart", json!({}), report);
    }
    families(&mut work, report);
    if work.take("routerID").is_some() {
        let at = work.path("routerID");
        report.ignored(&at, "configured per node: set spec.bgp.routerId of each Node");
    }
    if let Some(profile) = work.take("bfdProfile").map(scalar).filter(|profile| !profile.is_empty()) {
        let at = work.path("bfdProfile");
        match Name::parse(&profile) {
            Ok(profile) if draft.profiles.contains_key(&profile) => {
                work.put("bfdProfile", "bfdProfile", json!(profile), report);
            }
            Ok(profile) => {
                report
                    .approximated(&at, &format!("bfdprofile/{profile} is not in the input; create it first"));
                work.spec.insert("bfdProfile".to_owned(), json!(profile));
            }
            Err(error) => report.ignored(&at, &format!("the name {error}")),
        }
    }
    Ok(work.done(report))
}

fn multi_hop(work: &mut Work<'_>, report: &mut Report) {
    if work.flag("ebgpMultiHop", false, report) != Some(true) {
        return;
    }
    let [own, peer] = ["localASN", "peerASN"].map(|key| work.spec.get(key).map(scalar).unwrap_or_default());
    if peer == "internal" || own == peer {
        let at = work.path("ebgpMultiHop");
        report.approximated(&at, "left out: an internal peer may be any number of hops away");
    } else {
        work.put("ebgpMultiHop", "ebgpMultiHop", json!(true), report);
    }
}

/// Translates the password of a peer. A password in a Secret is not read, so such a peer is disabled until
/// its `password` is set: a session that has a password is never attempted without it.
fn password(work: &mut Work<'_>, report: &mut Report) {
    if let Some(password) = work.take("password").map(scalar).filter(|password| !password.is_empty()) {
        work.put("password", "password", json!(password), report);
    }
    let secret = work.take("passwordSecret").map(|secret| text(secret, "/name"));
    if let Some(secret) = secret.filter(|secret| !secret.is_empty()) {
        let at = work.path("passwordSecret");
        let said = format!(
            "Secrets of the cluster are not read: {} is disabled until its spec.password is set to that \
             of Secret {secret}",
            work.target
        );
        report.approximated(&at, &said);
        work.spec.insert("disabled".to_owned(), json!(true));
    }
}

fn families(work: &mut Work<'_>, report: &mut Report) {
    let both = work.flag("dualStackAddressFamily", false, report);
    let single = work.flag("disableMP", true, report);
    let address = work.spec.get("peerAddress").map(scalar).and_then(|text| text.parse::<IpAddr>().ok());
    let family = match address {
        Some(IpAddr::V4(_)) => "IPv4",
        Some(IpAddr::V6(_)) => "IPv6",
        None => return,
    };
    let key = match (both, single) {
        (Some(true), _) => {
            report
                .mapped(&work.path("dualStackAddressFamily"), &format!("families of {}: both", work.target));
            return;
        }
        (Some(false), _) => "dualStackAddressFamily",
        (None, Some(true)) => "disableMP",
        (None, Some(false) | None) => return,
    };
    work.put(key, "families", json!([family]), report);
}

/// Translates a BFDProfile resource.
pub(crate) fn profile_object(draft: &mut Draft, document: &Value) {
    let name = text(document, "/metadata/name");
    let Some(name) = pool::name(&name, "metadata.name", &mut draft.report) else { return };
    let fields = Fields::of(document.get("spec").unwrap_or(&Value::Null), "spec");
    profile(draft, name, fields, Spelling::Resource);
}

/// Translates a MetalLB BFD profile to the BfdProfile `name`.
pub(crate) fn profile(draft: &mut Draft, name: Name, fields: Fields<'_>, spelling: Spelling) {
    let report = &mut draft.report;
    if draft.profiles.contains_key(&name) {
        report.ignored(&fields.path("name"), &format!("duplicate profile {name}; it is left out"));
        return;
    }
    let mut work = Work::new(fields, spelling, format!("bfdprofile/{name}"));
    for key in ["receiveInterval", "transmitInterval", "detectMultiplier", "minimumTtl"] {
        work.carry(key, key, report);
    }
    work.carry_flag("passiveMode", "passiveMode", report);
    let at_echo_mode = work.path("echoMode");
    match work.flag("echoMode", false, report) {
        Some(true) => {
            report.ignored(
                &at_echo_mode,
                "echo packets are not supported; the intervals of control packets apply",
            );
        }
        Some(false) => report.mapped(&at_echo_mode, "false: no echo packets are sent"),
        None => {}
    }
    if work.take("echoInterval").is_some() {
        let at = work.path("echoInterval");
        report.ignored(&at, "echo packets are not supported");
    }
    let spec = work.done(report);
    draft.profiles.insert(name, spec);
}

/// Translates a Community resource with named communities.
pub(crate) fn communities_object(draft: &mut Draft, document: &Value) {
    for (number, entry) in items(document, "/spec/communities").iter().enumerate() {
        let at = format!("spec.communities[{number}]");
        community(draft, &at, &text(entry, "/name"), &text(entry, "/value"));
    }
}

/// Parses the named community at path `at`, and adds it to the communities of the draft.
pub(crate) fn community(draft: &mut Draft, at: &str, name: &str, value: &str) {
    match value.parse::<Community>() {
        Ok(community) => {
            draft.report.mapped(at, &format!("{name}: replaced by {community} wherever it is used"));
            draft.communities.insert(name.to_owned(), community);
        }
        Err(error) => draft.report.ignored(at, &error),
    }
}

/// Parses a Go duration, such as `90s`, `1m30s`, `1.5h` or `500ms`, into milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text.trim(), 0.0_f64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let factor = match unit {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1000.0,
            "ms" => 1.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    // Limit of one day; all of these durations are shorter.
    let is_sound = total.is_finite() && (0.0..=86_400_000.0).contains(&total);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    is_sound.then_some(total.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, expected) in [
            ("90s", Some(90_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("0s", Some(0)),
            ("", None),
            ("90", None),
            ("s", None),
            ("-3s", None),
            ("1d", None),
            ("999999h", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
