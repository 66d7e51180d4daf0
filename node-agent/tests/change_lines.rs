//! What one endpoint change writes, counted. Times are printed, not judged.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

mod support;

use model::node::ProxyMode;
use support::{
    change::{Change, Size, measure, table},
    cost::machine,
};

const CHANGES: u32 = 6;

#[test]
fn f062_one_endpoint_change_writes_the_same_whatever_the_number_of_services() {
    for mode in [ProxyMode::Nftables, ProxyMode::Iptables] {
        let found = [20, 400].map(|services| changes(mode, services));
        println!("{}\n{}", machine(), table(&found));
        let [few, many] = found;
        assert_eq!((few.messages, few.transactions), (many.messages, many.transactions), "{}", mode.as_str());
        assert!(few.messages > 0 && few.first_messages < many.first_messages);
    }
}

fn changes(mode: ProxyMode, services: u32) -> Change {
    measure("f062", mode, &Size { services, endpoints: 3, changes: CHANGES })
}
