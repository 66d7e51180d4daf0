//! Builders of many Services that differ only in their numbers.

use std::net::Ipv4Addr;

use model::{
    kinds::service::Protocol,
    program::{Masquerade, Program},
};
use node_agent::dataplane::DesiredState;

use super::programs::{at, forward, program, set};

/// Builds `services` Services `s0`, `s1`, … at 10.96.x.y with `endpoints` endpoints each.
pub fn many(services: u32, endpoints: u32) -> DesiredState {
    let mut desired = DesiredState::default();
    for number in 0..services {
        set(&mut desired, &format!("s{number}"), numbered(number, endpoints, 0));
    }
    desired
}

/// Builds the Service with number `service` at TCP port 80. The first of its endpoints is different for each
/// value of `changed`.
pub fn numbered(service: u32, endpoints: u32, changed: u32) -> Program {
    let virtual_address = Ipv4Addr::from(0x0a60_0000 + service + 1).to_string();
    let list: Vec<_> = (0..endpoints)
        .map(|number| {
            let number = service * endpoints + number + 1 + if number == 0 { changed } else { 0 };
            (Ipv4Addr::from(0x0b00_0000 + number).to_string(), 8080, 1)
        })
        .collect();
    let list: Vec<_> = list.iter().map(|(ip, port, weight)| (ip.as_str(), *port, *weight)).collect();
    // One endpoint in ten is on this node.
    let hairpins: Vec<_> = list.iter().map(|(ip, ..)| *ip).step_by(10).collect();
    let verdict = forward(Masquerade::OffCluster, &list);
    program(&[&virtual_address], &hairpins, &[(at(&virtual_address, Protocol::Tcp, 80), verdict)])
}
