//! Containers that adapters on other machines have published in Tidegate. An address used on several machines
//! is ambiguous and must not become an endpoint; a subnet used on several machines is reported.

use model::primitives::name::Name;
use serde_json::Value;

use super::plan::{ENGINE_LABEL, Elsewhere, SUBNETS_ANNOTATION};
use crate::control::{Control, Request};

/// Number of Workloads per page of a listing, and maximum number of pages per poll.
const PAGE: usize = 500;
const PAGES_MAX: usize = 40;

/// Returns the addresses and subnets of containers on Nodes other than `node`, or `None` if the control
/// server cannot be read.
pub(super) async fn look(control: &Control, node: &Name) -> Option<Elsewhere> {
    let mut elsewhere = Elsewhere::default();
    let mut token = None::<String>;
    for _ in 0..PAGES_MAX {
        let request = Request::get("/v1/workloads")
            .query("labelSelector", Some(format!("{ENGINE_LABEL}=docker")))
            .query("limit", Some(PAGE.to_string()))
            .query("continue", token.take());
        let page = control.send(&request).await.ok()?;
        for item in page.get("items").and_then(Value::as_array).into_iter().flatten() {
            take(&mut elsewhere, node, item);
        }
        token = page.pointer("/metadata/continue").and_then(Value::as_str).map(str::to_owned);
        if token.as_ref().is_none_or(String::is_empty) {
            break;
        }
    }
    Some(elsewhere)
}

fn take(elsewhere: &mut Elsewhere, node: &Name, item: &Value) {
    let other = item.pointer("/spec/node").and_then(Value::as_str).unwrap_or_default();
    let annotations = item.pointer("/metadata/annotations");
    let subnets =
        annotations.and_then(|annotations| annotations.get(SUBNETS_ANNOTATION)).and_then(Value::as_str);
    // A container without subnets is reached at an address of its machine.
    let Some(subnets) = subnets.filter(|_| other != node.as_str()) else { return };
    for subnet in subnets.split(',').filter(|subnet| !subnet.is_empty()) {
        elsewhere.subnets.entry(subnet.to_owned()).or_default().insert(other.to_owned());
    }
    for address in item.pointer("/spec/addresses").and_then(Value::as_array).into_iter().flatten() {
        if let Some(address) = address.as_str().and_then(|text| text.parse().ok()) {
            elsewhere.addresses.insert(address, other.to_owned());
        }
    }
}
