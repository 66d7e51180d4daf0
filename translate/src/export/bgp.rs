//! Routers and the watching of paths to them, as resources of MetalLB.

use std::collections::BTreeSet;

use model::{
    kinds::{
        bfd_profile::BfdProfileSpec,
        bgp_peer::{BgpFamily, BgpPeerSpec, GracefulRestart, PeerAsn},
        metadata::Metadata,
    },
    primitives::net::IpFamily,
};
use serde_json::{Value, json};

use super::{Exported, Line, metallb::push};

/// How long routes are kept over a restart there, in seconds.
const RESTART_TIME: u16 = 120;

pub(super) fn peer(made: &mut Exported, metadata: &Metadata, spec: &BgpPeerSpec, value: &Value) {
    if spec.disabled {
        made.report.ignored("spec.disabled", "left out: there is no way to have no session with it");
        return;
    }
    if spec.peer_network.is_some() {
        made.report.ignored("spec.peerNetwork", "left out: sessions from a network are not accepted there");
        return;
    }
    let Some(own) = spec.local_asn else {
        let reason = "left out: myASN has to be given there; set spec.localASN, which is that of `tidegate-api --asn` or of \
                      the Node when left out";
        made.report.ignored("spec.localASN", reason);
        return;
    };
    let mut line = Line::new(made);
    line.put("localASN", "myASN", json!(own));
    match spec.peer_asn {
        PeerAsn::Number(number) => line.put("peerASN", "peerASN", json!(number)),
        PeerAsn::Internal => line.put("peerASN", "dynamicASN", json!("internal")),
        PeerAsn::External => line.put("peerASN", "dynamicASN", json!("external")),
    }
    line.put("peerAddress", "peerAddress", json!(spec.peer_address));
    line.put("interface", "interface", json!(spec.interface));
    line.put("peerPort", "peerPort", json!(spec.peer_port));
    line.put("sourceAddress", "sourceAddress", json!(spec.source_address));
    let seconds = |time: Option<u16>| json!(time.map(|seconds| format!("{seconds}s")));
    line.put("holdTime", "holdTime", seconds(spec.hold_time));
    line.put("keepaliveTime", "keepaliveTime", seconds(spec.keepalive_time));
    line.put("connectTime", "connectTime", seconds(spec.connect_time));
    password(&mut line, metadata, spec, value);
    line.same("ebgpMultiHop", json!(true), spec.ebgp_multi_hop);
    line.put("bfdProfile", "bfdProfile", json!(spec.bfd_profile));
    families(&mut line, spec);
    if !spec.node_selectors.is_empty() {
        line.made
            .report
            .approximated("spec.nodeSelectors", "match the labels that nodes have in the cluster");
        line.spec.insert("nodeSelectors".to_owned(), json!(spec.node_selectors));
    }
    only_here(&mut line, spec);
    push(line, "BGPPeer", metadata);
}

/// A password is shown by nobody. A session that was protected is not tried without: there it waits for the Secret.
fn password(line: &mut Line<'_>, metadata: &Metadata, spec: &BgpPeerSpec, value: &Value) {
    if let Some(password) = spec.password.as_ref().filter(|password| !password.reveal().is_empty()) {
        line.put("password", "password", json!(password.reveal()));
    } else if value.pointer("/status/hasPassword") == Some(&json!(true)) {
        let secret = format!("bgppeer-{}", metadata.name);
        let said = format!(
            "nobody shows it: make a Secret {secret} of type kubernetes.io/basic-auth with it, in the namespace of MetalLB"
        );
        line.made.report.approximated("spec.password", &said);
        line.spec.insert("passwordSecret".to_owned(), json!({ "name": secret }));
    }
}

/// Left out, it means one family there and both here, so it is always said.
fn families(line: &mut Line<'_>, spec: &BgpPeerSpec) {
    let own = spec.peer_address.map(|address| match IpFamily::of(address) {
        IpFamily::V4 => BgpFamily::IPv4,
        IpFamily::V6 => BgpFamily::IPv6,
    });
    let is_both = spec.effective_families().len() == 2;
    let is_own = own.is_some_and(|own| spec.families == BTreeSet::from([own]));
    if !is_both && !is_own {
        let said = "both families: one that is not the session's cannot be had by itself there";
        line.made.report.approximated("spec.families", said);
    }
    line.same("dualStackAddressFamily", json!(!is_own), true);
}

/// What nothing there has. Named one by one, so that a new field of a peer is thought of here.
fn only_here(line: &mut Line<'_>, spec: &BgpPeerSpec) {
    let BgpPeerSpec {
        peer_address: _,
        interface: _,
        peer_network: _,
        peer_asn: _,
        local_asn: _,
        peer_port: _,
        source_address: _,
        hold_time: _,
        keepalive_time: _,
        connect_time: _,
        password: _,
        ebgp_multi_hop: _,
        bfd_profile: _,
        families: _,
        node_selectors: _,
        disabled: _,
        dynamic_limit,
        ttl_security,
        graceful_restart,
        passive,
        role,
        max_prefixes,
    } = spec;
    if let Some(GracefulRestart { restart_time }) = graceful_restart {
        line.put("gracefulRestart", "enableGracefulRestart", json!(true));
        if *restart_time != RESTART_TIME {
            let said = format!("{RESTART_TIME} s there");
            line.made.report.approximated("spec.gracefulRestart.restartTime", &said);
        }
    }
    line.lost("dynamicLimit", dynamic_limit.is_some(), "it belongs to peerNetwork");
    line.lost("ttlSecurity", ttl_security.is_some(), "packets are taken over any number of hops there");
    line.lost("passive", *passive, "connections are made there, too");
    line.lost("role", role.is_some(), "no role is told there");
    line.lost("maxPrefixes", max_prefixes.is_some(), "what peers announce is not limited there");
}

pub(super) fn profile(made: &mut Exported, metadata: &Metadata, spec: &BfdProfileSpec) {
    let BfdProfileSpec { receive_interval, transmit_interval, detect_multiplier, passive_mode, minimum_ttl } =
        spec;
    let mut line = Line::new(made);
    line.put("receiveInterval", "receiveInterval", json!(receive_interval));
    line.put("transmitInterval", "transmitInterval", json!(transmit_interval));
    line.put("detectMultiplier", "detectMultiplier", json!(detect_multiplier));
    line.same("passiveMode", json!(true), *passive_mode);
    line.put("minimumTtl", "minimumTtl", json!(minimum_ttl));
    push(line, "BFDProfile", metadata);
}
