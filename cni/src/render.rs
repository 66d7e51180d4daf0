//! Answers of the plugin in the format of the specification. Does no I/O.

use std::net::IpAddr;

use attach_socket::AttachedWorkload;
use serde_json::{Map, Value, json};

use crate::{
    CniError,
    parse::{DnsConfig, VERSIONS},
};

/// Returns the result of ADD: that of the plugin before, if any, with the interfaces, addresses and routes of the attachment.
/// Settings of the resolver are those of the plugin before, or else `dns`.
#[must_use]
pub fn success(
    version: &str,
    attached: &AttachedWorkload,
    netns: &str,
    prev_result: Option<&Value>,
    dns: &DnsConfig,
) -> Value {
    let mut result = prev_result.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut workload = json!({"name": attached.key.interface, "mac": attached.mac, "sandbox": netns});
    if version == "1.1.0"
        && let Some(fields) = workload.as_object_mut()
    {
        fields.insert("mtu".to_owned(), attached.mtu.into());
    }
    let node = json!({"name": attached.host_interface, "mac": "ee:ee:ee:ee:ee:ee"});
    let index = append(&mut result, "interfaces", [node, workload]) + 1;
    let addresses = attached.addresses.iter().zip(attached.gateways());
    append(&mut result, "ips", addresses.map(|(address, gateway)| ip(version, *address, gateway, index)));
    let routes = attached.gateways().map(|gateway| {
        let all = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        json!({"dst": all, "gw": gateway.to_string()})
    });
    append(&mut result, "routes", routes);
    result.insert("cniVersion".to_owned(), version.into());
    if result.get("dns").and_then(Value::as_object).is_none_or(Map::is_empty) {
        result.insert("dns".to_owned(), json!(dns));
    }
    Value::Object(result)
}

fn ip(version: &str, address: IpAddr, gateway: IpAddr, interface: usize) -> Value {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let mut ip = json!({"address": format!("{address}/{prefix}"), "gateway": gateway.to_string(), "interface": interface});
    // Removed in version 1.0.0.
    if version.starts_with("0.")
        && let Some(fields) = ip.as_object_mut()
    {
        fields.insert("version".to_owned(), if address.is_ipv4() { "4" } else { "6" }.into());
    }
    ip
}

/// Appends values to a list of the result, and returns its former length.
fn append(result: &mut Map<String, Value>, list: &str, values: impl IntoIterator<Item = Value>) -> usize {
    let list = result.entry(list).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return 0 };
    let length = list.len();
    list.extend(values);
    length
}

/// Returns the answer to VERSION.
#[must_use]
pub fn versions(version: &str) -> Value {
    json!({"cniVersion": version, "supportedVersions": VERSIONS})
}

/// Returns the answer to a failed operation.
#[must_use]
pub fn failure(version: &str, error: &CniError) -> Value {
    let CniError { code, message, details } = error;
    json!({"cniVersion": version, "code": code.number(), "msg": message, "details": details})
}

/// Returns the first address of the attachment that the result of ADD does not have; `None` if it has all.
#[must_use]
pub fn missing_address(prev_result: &Value, attached: &AttachedWorkload) -> Option<IpAddr> {
    let ips = prev_result.get("ips").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let held: Vec<_> = ips
        .iter()
        .filter_map(|ip| ip.get("address")?.as_str()?.split('/').next()?.parse::<IpAddr>().ok())
        .collect();
    attached.addresses.iter().find(|address| !held.contains(address)).copied()
}
