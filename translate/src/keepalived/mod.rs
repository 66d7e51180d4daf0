//! Import of `keepalived.conf`: virtual servers with their checks, and the addresses of VRRP.

mod checks;
mod group;
mod parse;
mod server;
mod vrrp;

use std::{collections::BTreeMap, net::IpAddr};

use model::primitives::name::Name;

use self::{
    group::Groups,
    parse::{Item, parse},
    server::ENDPOINTS_MAX,
};
use crate::{
    draft::Draft,
    report::Report,
    virtual_server::{VirtualServer, put_all},
};

/// Keywords at the beginning of a line by which an input is recognized as a keepalived configuration.
pub(crate) const KEYWORDS: [&str; 24] = [
    "global_defs",
    "vrrp_instance",
    "vrrp_sync_group",
    "vrrp_script",
    "vrrp_track_process",
    "vrrp_track_file",
    "virtual_server",
    "virtual_server_group",
    "static_ipaddress",
    "static_routes",
    "static_rules",
    "garp_group",
    "track_file",
    "track_process",
    "track_script",
    "bfd_instance",
    "net_namespace",
    "linkbeat_use_polling",
    "linkbeat_interfaces",
    "interface_up_down_delays",
    "SSL",
    "include",
    "includea",
    "includem",
];
/// Maximum number of characters of a line quoted in the report.
const TEXT_CHARS_MAX: usize = 200;
/// Maximum number of virtual servers of an input, after the expansion of groups.
const SERVERS_MAX: usize = 20_000;

/// Parses a keepalived configuration, and adds the objects for its virtual servers and VRRP addresses to the
/// draft.
///
/// # Errors
/// Returns an error if the syntax is invalid, other files are included, or the text is too long.
pub(crate) fn text(draft: &mut Draft, file: &str, text: &str) -> Result<(), String> {
    let parsed = parse(text)?;
    let mut groups = Groups::new();
    let of = |keyword: &'static str| parsed.items.iter().filter(move |item| item.keyword() == keyword);
    for item in of("virtual_server_group") {
        draft.report.begin(&title(file, item));
        groups.insert(item.argument(), group::group(item, &mut draft.report));
    }
    let mut moved: BTreeMap<IpAddr, Name> = BTreeMap::new();
    for item in of("vrrp_instance") {
        draft.report.begin(&title(file, item));
        moved.extend(vrrp::instance(draft, item));
    }
    let mut servers: Vec<VirtualServer> = Vec::new();
    let mut endpoints = 0_usize;
    for item in of("virtual_server") {
        draft.report.begin(&title(file, item));
        match server::servers(item, &groups, &mut draft.report) {
            Ok(made) => {
                endpoints += made.iter().map(|server| server.real_servers.len()).sum::<usize>();
                servers.extend(made);
            }
            Err(reason) => draft.report.ignored("", &format!("the virtual server is left out: {reason}")),
        }
        if servers.len() > SERVERS_MAX || endpoints > ENDPOINTS_MAX {
            return Err(format!(
                "more than {SERVERS_MAX} virtual servers, or {ENDPOINTS_MAX} endpoints; split it"
            ));
        }
    }
    for item in &parsed.items {
        if !matches!(item.keyword(), "vrrp_instance" | "virtual_server" | "virtual_server_group") {
            draft.report.begin(&title(file, item));
            rest(item, "", &mut draft.report);
        }
    }
    if !parsed.conditional.is_empty() {
        draft.report.begin(&format!("{file}: lines for specific machines"));
        for (line, text) in &parsed.conditional {
            let said = "the machine is unknown; write the line without its condition";
            draft.report.ignored(&format!("line {line}: {text}"), said);
        }
    }
    unused_addresses(draft, file, &moved, &servers);
    if !servers.is_empty() {
        put_all(draft, &format!("{file}: all virtual servers"), servers);
    }
    Ok(())
}

/// Reports the VRRP addresses that no virtual server uses. Tidegate announces such an address only after a
/// Service has it.
fn unused_addresses(
    draft: &mut Draft,
    file: &str,
    moved: &BTreeMap<IpAddr, Name>,
    servers: &[VirtualServer],
) {
    draft.report.begin(&format!("{file}: all virtual addresses"));
    let used: std::collections::BTreeSet<IpAddr> = servers.iter().map(|server| server.address).collect();
    for (address, pool) in moved.iter().filter(|(address, _)| !used.contains(*address)) {
        draft.report.approximated(
            &address.to_string(),
            &format!(
                "no virtual server uses it; it is in addresspool/{pool}, and announced once a \
                      Service requests it"
            ),
        );
    }
}

fn title(file: &str, item: &Item) -> String {
    format!("{file}: line {}: {}", item.line, item.text())
}

/// Reports a configuration item as not supported. If the item is a block, reports each of its innermost
/// lines.
fn rest(item: &Item, at: &str, report: &mut Report) {
    // Secrets must not appear in the report.
    let is_secret = matches!(item.keyword(), "auth_pass" | "password" | "key");
    let text = if is_secret { item.keyword().to_owned() } else { item.text() };
    // Repeated for each child, so limited in length.
    let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
    let path = if at.is_empty() { text } else { format!("{at} {text}") };
    if item.children.is_empty() {
        report.ignored(&format!("{path} (line {})", item.line), reason(item.keyword()));
    }
    for child in &item.children {
        rest(child, &path, report);
    }
}

/// Returns the reason why the setting with a keyword has no counterpart in Tidegate.
fn reason(keyword: &str) -> &'static str {
    match keyword {
        "notification_email"
        | "notification_email_from"
        | "smtp_server"
        | "smtp_connect_timeout"
        | "smtp_alert"
        | "smtp_alert_checker"
        | "smtp_alert_vrrp"
        | "no_smtp_alert"
        | "no_email_faults" => "mail is not supported; alert on metrics and events",
        "notify"
        | "notify_master"
        | "notify_backup"
        | "notify_fault"
        | "notify_stop"
        | "notify_up"
        | "notify_down"
        | "notify_deleted"
        | "notify_master_rx_lower_pri"
        | "quorum_up"
        | "quorum_down" => "scripts are not supported; watch the API",
        "state"
        | "priority"
        | "virtual_router_id"
        | "advert_int"
        | "nopreempt"
        | "preempt_delay"
        | "preempt"
        | "native_ipv6"
        | "version"
        | "strict_mode"
        | "use_vmac"
        | "vmac_xmit_base"
        | "accept"
        | "no_accept"
        | "dont_track_primary"
        | "authentication"
        | "auth_type"
        | "auth_pass"
        | "unicast_src_ip"
        | "unicast_peer"
        | "mcast_src_ip"
        | "garp_master_delay"
        | "garp_master_repeat"
        | "garp_master_refresh" => {
            "VRRP is not used: agents monitor each other, and a returning node does not reclaim addresses"
        }
        "sorry_server" | "sorry_server_inhibit" | "sorry_server_lvs_method" => {
            "fallback endpoints are not supported; connections are refused while no endpoint is healthy"
        }
        "quorum" | "hysteresis" | "alpha" | "omega" | "ha_suspend" => {
            "a Service is served while any endpoint is healthy, and endpoints count as healthy until \
             checks fail"
        }
        "lvs_sync_daemon" | "lvs_sync_daemon_interface" => "connections are not synchronized between nodes",
        _ => "not supported",
    }
}
