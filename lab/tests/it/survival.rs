//! Survival of established connections with whole agents: a control server, five nodes, and a client on their network.
//!
//! ```text
//! client ──┬── node1   node2          announce the addresses of `web` and `plain`
//!          └── node3   node4   node5  have an endpoint each; node5 later
//! ```
//! `web` has `connections.survive: Always`, `plain` is the same without it.

mod flows;
mod page;
mod stage;

use std::time::Duration;

use self::{
    flows::PATIENCE,
    page::{Fault, Row},
    stage::Stage,
};

/// Time after which a connection without survival counts as lost.
const PATIENCE_PLAIN: Duration = Duration::from_secs(3);

/// F117, F132: established connections survive each loss and each move of the announcing node, idle and busy, IPv4 and IPv6, and
/// whichever side speaks first. The page `docs/reference/surviving-connections.md` has the results.
#[test]
fn f117_f132_established_connections_survive_every_fault_of_the_announcing_node() {
    let mut stage = Stage::start();
    // These connections live through all faults.
    let mut lasting = stage.open(&stage.web, stage::LASTING);
    assert!(lasting.iter().all(|flow| flow.is_seen), "endpoints see the client");
    let mut rows = Vec::new();
    let mut troubles = Vec::new();
    for fault in Fault::ALL {
        stage.gather();
        let (mut web, mut plain) =
            (stage.open(&stage.web, stage::EACH), stage.open(&stage.plain, stage::EACH_PLAIN));
        let lost_node = stage.lost_endpoint_node(fault);
        for flows in [&mut web, &mut plain, &mut lasting] {
            flows.retain(|flow| lost_node != Some(flow.server.as_str()));
            flows.start();
        }
        stage.fail(fault);
        let (losses, named) = web.check(PATIENCE);
        let (of_plain, _) = plain.check(PATIENCE_PLAIN);
        let (_, of_lasting) = lasting.check(PATIENCE);
        troubles.extend(named.into_iter().map(|one| format!("{fault:?}: {one}")));
        troubles.extend(of_lasting.iter().map(|one| format!("{fault:?}, from the beginning: {one}")));
        rows.push(Row { fault, losses, of_plain });
        stage.heal(fault);
    }
    assert!(troubles.is_empty(), "{} lost:\n{}", troubles.len(), troubles.join("\n"));
    page::check(&rows);
}
