//! Footprint of flannel with its VXLAN backend, by the rules of iptables or by tables of nf_tables.

use super::footprint::{Footprint, Overlay, bridged_pod};

/// Networks of all pods; the third byte, or the last but one group, is the number of the node.
const NETWORKS: [&str; 2] = ["10.244.0.0/16", "fd00:244::/48"];

pub(crate) fn footprint(index: u8) -> Footprint {
    let mut footprint = Footprint { host: format!("veth1d2c3b4{index}"), ..Footprint::default() };
    bridged_pod(&mut footprint, "cni0", &format!("10.244.{index}"), 1450);
    overlay().add_to(&mut footprint, index);
    footprint.rules = [false, true].map(|is_v6| rules(index, is_v6));
    let tables = [("ip", "flannel-ipv4", false), ("ip6", "flannel-ipv6", true)];
    let script = |(family, table, is_v6): (&str, &str, bool)| native(index, family, table, is_v6);
    footprint.native = (tables.map(script).concat(), vec!["ip flannel-ipv4", "ip6 flannel-ipv6"]);
    footprint
}

/// Returns the device of flannel, which Canal uses too.
pub(crate) fn overlay() -> Overlay {
    Overlay {
        device: "flannel.1",
        vni: 1,
        port: 8472,
        mac: "0e:2d:00:00:00",
        protocol: "boot",
        network: "10.244",
        prefix_length: 24,
    }
}

/// Networks of all pods, of the pods of the node, and of multicast.
fn networks(index: u8, is_v6: bool) -> [String; 3] {
    let own = if is_v6 { format!("fd00:244:0:{index}::/64") } else { format!("10.244.{index}.0/24") };
    let multicast = if is_v6 { "ff00::/8" } else { "224.0.0.0/4" };
    [NETWORKS[usize::from(is_v6)].to_owned(), own, multicast.to_owned()]
}

/// Returns the rules of flannel in tables of iptables.
pub(crate) fn rules(index: u8, is_v6: bool) -> String {
    let [all, own, multicast] = networks(index, is_v6);
    let (masquerade, forward) = (comment("masq"), comment("forward"));
    format!(
        "*nat
         -A POSTROUTING {masquerade} -j FLANNEL-POSTRTG
         -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 {masquerade} -j RETURN
         -A FLANNEL-POSTRTG -s {own} -d {all} {masquerade} -j RETURN
         -A FLANNEL-POSTRTG -s {all} -d {own} {masquerade} -j RETURN
         -A FLANNEL-POSTRTG ! -s {all} -d {own} {masquerade} -j RETURN
         -A FLANNEL-POSTRTG -s {all} ! -d {multicast} {masquerade} -j MASQUERADE --random-fully
         -A FLANNEL-POSTRTG ! -s {all} -d {all} {masquerade} -j MASQUERADE --random-fully
         *filter
         -A FORWARD {forward} -j FLANNEL-FWD
         -A FLANNEL-FWD -s {all} {forward} -j ACCEPT
         -A FLANNEL-FWD -d {all} {forward} -j ACCEPT
        "
    )
}

fn comment(subject: &str) -> String {
    format!("-m comment --comment \"flanneld {subject}\"")
}

/// Returns the same rules in tables of nf_tables.
fn native(index: u8, family: &str, table: &str, is_v6: bool) -> String {
    let [all, own, multicast] = networks(index, is_v6);
    format!(
        "table {family} {table} {{
           chain forward {{
             type filter hook forward priority filter;
             {family} saddr {all} accept
             {family} daddr {all} accept
           }}
           chain postrtg {{
             type nat hook postrouting priority srcnat;
             meta mark 0x4000 return
             {family} saddr {own} {family} daddr {all} return
             {family} saddr {all} {family} daddr {own} return
             {family} saddr != {own} {family} daddr {all} return
             {family} saddr {all} {family} daddr != {multicast} masquerade fully-random
             {family} saddr != {all} {family} daddr {all} masquerade fully-random
           }}
         }}\n"
    )
}
