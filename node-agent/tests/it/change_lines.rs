//! Tests that one endpoint change writes as many messages or lines with many Services as with few, in every
//! mode that programs the kernel. Times are only printed.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use model::kinds::node::ProxyMode;

use crate::support::{
    change::{Size, measure, table},
    cost::machine,
    isolated::in_guest,
};

const CHANGES: u32 = 6;

#[test]
fn f062_one_endpoint_change_writes_the_same_whatever_the_number_of_services() {
    for mode in [ProxyMode::Nftables, ProxyMode::Iptables] {
        same_for_few_and_many(mode);
    }
}

#[test]
fn f064_one_endpoint_change_of_ipvs_writes_the_same_whatever_the_number_of_services() {
    let name =
        "change_lines::f064_one_endpoint_change_of_ipvs_writes_the_same_whatever_the_number_of_services";
    in_guest(name, || same_for_few_and_many(ProxyMode::Ipvs));
}

fn same_for_few_and_many(mode: ProxyMode) {
    let changes = |services| measure("change", mode, &Size { services, endpoints: 3, changes: CHANGES });
    let found = [20, 400].map(changes);
    println!("{}\n{}", machine(), table(&found));
    let [few, many] = found;
    assert_eq!((few.messages, few.transactions), (many.messages, many.transactions), "{}", mode.as_str());
    assert!(few.messages > 0 && few.first_messages < many.first_messages);
}
