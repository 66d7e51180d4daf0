//! Connections that exist when a policy changes.

use std::net::SocketAddr;

use model::primitives::net::IpFamily;

use crate::site::{Selected, Site, accept, is_carried, isolated, peers};

/// Input: two connections to a workload, then a policy that accepts one of the clients. Output: the other connection carries
/// no byte in either direction, whoever sends first; the removal of the policy ends no connection.
#[test]
fn a_forbidden_connection_ends_and_the_removal_of_a_policy_ends_none() {
    let mut site = Site::new(3);
    for family in IpFamily::ALL {
        let target = SocketAddr::new(site.address(0, family), 80);
        let open = |site: &Site, from| {
            let client = site.connect(from, target, true).unwrap();
            (client, site.accept(0, 80))
        };
        let (mut denied, mut denied_server) = open(&site, 1);
        let (mut kept, mut kept_server) = open(&site, 2);
        // The forbidden end that sends first must not open a connection of its own.
        let (mut silent, mut silent_server) = open(&site, 1);
        site.select(2, Selected { peers: vec![2], ..Selected::default() });
        assert_eq!((site.program(), site.cut()), (0, 0), "no workload has a set");
        site.select(
            0,
            Selected { ingress: Some(isolated(vec![accept(peers(2), None)])), ..Selected::default() },
        );
        site.program();
        // Closing connections of the first family may be among them.
        assert!(site.cut() >= 2);
        assert!(!is_carried(&mut denied, &mut denied_server, false), "from the client");
        assert!(!is_carried(&mut silent_server, &mut silent, false), "from the server first");
        assert!(!is_carried(&mut silent, &mut silent_server, false), "then from the client");
        assert!(
            is_carried(&mut kept, &mut kept_server, true) && is_carried(&mut kept_server, &mut kept, true)
        );
        assert_eq!(site.cut(), 0);

        site.select(0, Selected::default());
        assert!(site.program() > 0);
        assert_eq!(site.cut(), 0);
        assert!(is_carried(&mut kept, &mut kept_server, true));
        assert!(open(&site, 1).0.peer_addr().is_ok());
    }
}
