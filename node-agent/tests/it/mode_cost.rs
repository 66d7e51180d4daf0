//! Tests that the programs that measure the cost of proxy modes still work. The measured values are printed
//! but not checked.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's helpers are tests"
)]

use model::kinds::node::ProxyMode;

use crate::support::{
    cost::{Cost, Size, machine, measure, table},
    isolated::in_guest,
};

#[test]
fn f058_throughput_and_latency_of_each_mode_are_measured_on_the_same_box() {
    let modes = vec![ProxyMode::Nftables, ProxyMode::Iptables, ProxyMode::Userspace];
    let costs = measure("f058", &small(modes, vec![10]));
    println!("{}\n{}", machine(), table(&costs));
    assert_eq!(costs.len(), 4);
    check(costs);
}

/// F058, F064: ipvs mode is measured with 10 and with 10,000 Services, in the guest VM (`lab/guest.sh`). The
/// VM has one CPU and slow system calls, so that its results are only comparable with each other.
#[test]
fn f058_f064_ipvs_sets_up_connections_among_10000_services_as_among_10() {
    in_guest("mode_cost::f058_f064_ipvs_sets_up_connections_among_10000_services_as_among_10", || {
        let costs = measure("f064", &small(vec![ProxyMode::Ipvs], vec![10, 10_000]));
        println!("{}\n{}", machine(), table(&costs));
        let rate = |cost: &Cost| cost.connections_per_second.figure;
        println!("rate at 10,000 Services, of that at 10: {:.2}", rate(&costs[2]) / rate(&costs[1]));
        assert_eq!(costs.len(), 3);
        check(costs);
    });
}

/// Asserts that every value in the results was measured.
fn check(costs: Vec<Cost>) {
    for Cost { way, connections_per_second, latency_median, latency_p99, bytes_per_second } in costs {
        assert!(connections_per_second.figure > 0.0 && connections_per_second.share > 0.0, "{way:?}");
        assert!(latency_median.as_nanos() > 0 && latency_median <= latency_p99, "{way:?}");
        assert!(bytes_per_second.is_some_and(|flow| flow.figure > 0.0 && flow.share > 0.0), "{way:?}");
    }
}

fn small(modes: Vec<ProxyMode>, services: Vec<u32>) -> Size {
    Size { modes, services, endpoints: 2, rounds: 3, connections: 300, clients: 2, bytes: 16 << 20 }
}
