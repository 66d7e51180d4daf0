//! Export of BGP peers and BFD profiles as MetalLB resources.

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

use super::{DocumentDraft, ExportResult, metallb::push};

/// Graceful restart time that MetalLB advertises, in seconds.
const RESTART_TIME: u16 = 120;

pub(super) fn peer(made: &mut ExportResult, metadata: &Metadata, spec: &BgpPeerSpec, value: &Value) {
    if spec.disabled {
        made.report.ignored("spec.disabled", "left out: MetalLB peers cannot be disabled");
        return;
    }
    if spec.peer_network.is_some() {
        made.report.ignored("spec.peerNetwork", "left out: MetalLB does not accept dynamic peers");
        return;
    }
    let Some(own) = spec.local_asn else {
        let reason = "left out: MetalLB requires myASN; set spec.localASN, which defaults to that of \
                      `tidegate-api --asn` or of the Node";
        made.report.ignored("spec.localASN", reason);
        return;
    };
    let mut line = DocumentDraft::new(made);
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
        line.made.report.approximated("spec.nodeSelectors", "match the labels of the cluster's nodes");
        line.spec.insert("nodeSelectors".to_owned(), json!(spec.node_selectors));
    }
    only_here(&mut line, spec);
    push(line, "BGPPeer", metadata);
}

/// Copies the password of a BgpPeer to the MetalLB document. The password may be unknown, because the API
/// never returns passwords. The document then refers to a Secret to be created, so that MetalLB does not
/// attempt the session without a password.
fn password(line: &mut DocumentDraft<'_>, metadata: &Metadata, spec: &BgpPeerSpec, value: &Value) {
    if let Some(password) = spec.password.as_ref().filter(|password| !password.reveal().is_empty()) {
        line.put("password", "password", json!(password.reveal()));
    } else if value.pointer("/status/hasPassword") == Some(&json!(true)) {
        let secret = format!("bgppeer-{}", metadata.name);
        let said = format!(
            "the password cannot be read: create a Secret {secret} of type kubernetes.io/basic-auth with \
             it in MetalLB's namespace"
        );
        line.made.report.approximated("spec.password", &said);
        line.spec.insert("passwordSecret".to_owned(), json!({ "name": secret }));
    }
}

/// Sets the address families of a BgpPeer in the MetalLB document explicitly, because the default is one
/// family in MetalLB and both families in Tidegate.
fn families(line: &mut DocumentDraft<'_>, spec: &BgpPeerSpec) {
    let own = spec.peer_address.map(|address| match IpFamily::of(address) {
        IpFamily::V4 => BgpFamily::IPv4,
        IpFamily::V6 => BgpFamily::IPv6,
    });
    let is_both = spec.effective_families().len() == 2;
    let is_own = own.is_some_and(|own| spec.families == BTreeSet::from([own]));
    if !is_both && !is_own {
        let said = "both families: MetalLB cannot use only the family that differs from the session's";
        line.made.report.approximated("spec.families", said);
    }
    line.same("dualStackAddressFamily", json!(!is_own), true);
}

/// Reports the settings of a BgpPeer that MetalLB lacks. The code names every field, so that a new field
/// causes a compiler error here.
fn only_here(line: &mut DocumentDraft<'_>, spec: &BgpPeerSpec) {
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
        route_reflector_client,
    } = spec;
    if let Some(GracefulRestart { restart_time }) = graceful_restart {
        line.put("gracefulRestart", "enableGracefulRestart", json!(true));
        if *restart_time != RESTART_TIME {
            let said = format!("MetalLB uses {RESTART_TIME} s");
            line.made.report.approximated("spec.gracefulRestart.restartTime", &said);
        }
    }
    line.lost("dynamicLimit", dynamic_limit.is_some(), "applies to peerNetwork only");
    line.lost("ttlSecurity", ttl_security.is_some(), "MetalLB accepts packets over any number of hops");
    line.lost("passive", *passive, "MetalLB also opens connections");
    line.lost("role", role.is_some(), "MetalLB does not announce a role");
    line.lost("maxPrefixes", max_prefixes.is_some(), "MetalLB does not limit received prefixes");
    line.lost("routeReflectorClient", *route_reflector_client, "MetalLB reflects no routes");
}

pub(super) fn profile(made: &mut ExportResult, metadata: &Metadata, spec: &BfdProfileSpec) {
    let BfdProfileSpec { receive_interval, transmit_interval, detect_multiplier, passive_mode, minimum_ttl } =
        spec;
    let mut line = DocumentDraft::new(made);
    line.put("receiveInterval", "receiveInterval", json!(receive_interval));
    line.put("transmitInterval", "transmitInterval", json!(transmit_interval));
    line.put("detectMultiplier", "detectMultiplier", json!(detect_multiplier));
    line.same("passiveMode", json!(true), *passive_mode);
    line.put("minimumTtl", "minimumTtl", json!(minimum_ttl));
    push(line, "BFDProfile", metadata);
}
