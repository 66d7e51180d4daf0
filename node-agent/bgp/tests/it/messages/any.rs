//! Proptest strategies for all messages that can be sent.

use std::net::{Ipv4Addr, Ipv6Addr};

use bgp::{
    AsPath, Attributes, Capability, Community, ExtendedCommunity, Family, GracefulRestart, LargeCommunity,
    Message, Notification, Open, Origin, Refresh, RefreshKind, Role, Segment, Update, attributes::NextHop,
    wire::Context,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::{
    collection::{btree_map, btree_set, vec},
    option,
    prelude::*,
    sample::select,
};

/// Capability codes without a variant of `Capability`.
const FOREIGN_CODES: [u8; 12] = [0, 3, 4, 7, 8, 66, 67, 69, 71, 74, 128, 255];

pub(crate) fn context() -> impl Strategy<Value = Context> {
    any::<[bool; 5]>().prop_map(
        |[four_octet_as, extended_messages, extended_next_hop, is_external, is_confederation]| Context {
            four_octet_as,
            extended_messages,
            extended_next_hop,
            is_external,
            is_confederation,
        },
    )
}

pub(crate) fn message(context: Context) -> impl Strategy<Value = Message> {
    prop_oneof![
        1 => Just(Message::Keepalive),
        3 => open().prop_map(Message::Open),
        3 => notification().prop_map(Message::Notification),
        1 => refresh().prop_map(Message::Refresh),
        12 => update(context).prop_map(|update| Message::Update(Box::new(update))),
    ]
}

pub(crate) fn family() -> impl Strategy<Value = Family> {
    select(Family::ALL.as_slice())
}

fn role() -> impl Strategy<Value = Role> {
    select(
        [Role::Provider, Role::RouteServer, Role::RouteServerClient, Role::Customer, Role::Peer].as_slice(),
    )
}

pub(crate) fn graceful_restart() -> impl Strategy<Value = GracefulRestart> {
    let families = btree_map(family(), any::<bool>(), 0..3);
    (any::<bool>(), any::<bool>(), 0u16..4096, families).prop_map(
        |(is_restarted, notification, restart_time, families)| GracefulRestart {
            is_restarted,
            notification,
            restart_time,
            families,
        },
    )
}

/// Generates any capability except the AS number, which must match the OPEN.
pub(crate) fn capability() -> impl Strategy<Value = Capability> {
    prop_oneof![
        family().prop_map(Capability::MultiProtocol),
        Just(Capability::RouteRefresh),
        vec(family(), 0..4).prop_map(Capability::ExtendedNextHop),
        Just(Capability::ExtendedMessage),
        role().prop_map(Capability::Role),
        graceful_restart().prop_map(Capability::GracefulRestart),
        Just(Capability::EnhancedRouteRefresh),
        ("[a-z0-9.-]{0,64}", "[a-zé.]{0,32}")
            .prop_map(|(host, domain)| Capability::HostName { host, domain }),
        (select(FOREIGN_CODES.as_slice()), vec(any::<u8>(), 0..256))
            .prop_map(|(code, value)| Capability::Unknown { code, value }),
        // Known codes with invalid lengths.
        (select([2u8, 6, 65, 70].as_slice()), vec(any::<u8>(), 1..4))
            .prop_map(|(code, value)| Capability::Unknown { code, value }),
    ]
}

pub(crate) fn open() -> impl Strategy<Value = Open> {
    let hold_time = prop_oneof![Just(0u16), 3..=u16::MAX];
    let asn =
        prop_oneof![(1u32..65_536).prop_map(|asn| (asn, false)), (1..=u32::MAX).prop_map(|asn| (asn, true))];
    (asn, hold_time, 1..=u32::MAX, vec(capability(), 0..24)).prop_map(
        |((asn, is_said), hold_time, router_id, mut capabilities)| {
            if is_said {
                capabilities.insert(capabilities.len() / 2, Capability::FourOctetAs(asn));
            }
            Open { asn, hold_time, router_id: Ipv4Addr::from(router_id), capabilities }
        },
    )
}

pub(crate) fn notification() -> impl Strategy<Value = Notification> {
    (any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..600)).prop_map(|(code, subcode, data)| Notification {
        code,
        subcode,
        data,
    })
}

pub(crate) fn refresh() -> impl Strategy<Value = Refresh> {
    let kind = prop_oneof![
        Just(RefreshKind::Request),
        Just(RefreshKind::Begin),
        Just(RefreshKind::End),
        (3..=u8::MAX).prop_map(RefreshKind::Unknown)
    ];
    (option::of(family()), kind).prop_map(|(family, kind)| Refresh { family, kind })
}

pub(crate) fn update(context: Context) -> impl Strategy<Value = Update> {
    let next_hop_of_ipv4 = if context.extended_next_hop {
        prop_oneof![next_hop_v4(), next_hop_v6()].boxed()
    } else {
        next_hop_v4().boxed()
    };
    let withdrawn = |withdrawn| Update { withdrawn, ..Update::default() };
    let announced =
        |(announced, attributes)| Update { announced, attributes: Some(attributes), ..Update::default() };
    prop_oneof![
        1 => family().prop_map(|family| Update { end_of_rib: Some(family), ..Update::default() }),
        2 => prefixes(Family::Ipv4Unicast).prop_map(withdrawn),
        2 => prefixes(Family::Ipv6Unicast).prop_map(withdrawn),
        6 => (prefixes(Family::Ipv4Unicast), attributes(context, next_hop_of_ipv4)).prop_map(announced),
        6 => (prefixes(Family::Ipv6Unicast), attributes(context, next_hop_v6())).prop_map(announced),
    ]
}

/// Generates prefixes of a family, occasionally more than fit into one message.
fn prefixes(family: Family) -> impl Strategy<Value = Vec<IpNet>> {
    prop_oneof![9 => vec(prefix(family), 1..40), 1 => vec(prefix(family), 1..1200)]
}

pub(crate) fn prefix(family: Family) -> impl Strategy<Value = IpNet> {
    let bits = if family == Family::Ipv4Unicast { 32 } else { 128 };
    (any::<u128>(), prop_oneof![Just(bits), 0..=bits]).prop_map(move |(address, bits)| match family {
        Family::Ipv4Unicast => {
            let address = Ipv4Addr::from(u32::try_from(address >> 96).unwrap());
            IpNet::V4(Ipv4Net::new(address, bits).unwrap().trunc())
        }
        Family::Ipv6Unicast => IpNet::V6(Ipv6Net::new(Ipv6Addr::from(address), bits).unwrap().trunc()),
    })
}

/// Generates an IPv4 host address: not in 0.0.0.0/8, multicast or reserved.
fn next_hop_v4() -> impl Strategy<Value = NextHop> {
    (1u8..224, any::<[u8; 3]>()).prop_map(|(first, [b, c, d])| NextHop::V4(Ipv4Addr::new(first, b, c, d)))
}

fn next_hop_v6() -> impl Strategy<Value = NextHop> {
    (any::<Ipv6Addr>(), option::of(any::<Ipv6Addr>()))
        .prop_map(|(global, link_local)| NextHop::V6 { global, link_local })
}

/// Generates 2-octet and 4-octet AS numbers.
fn asn() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..65_536, 1..=u32::MAX, Just(23_456)]
}

pub(crate) fn as_path(context: Context) -> impl Strategy<Value = AsPath> {
    let sequence = prop_oneof![9 => vec(asn(), 1..8), 1 => vec(asn(), 255)].prop_map(Segment::Sequence);
    // At the beginning, where a 2-octet speaker keeps them, and with 2-octet numbers.
    let confederations = if context.is_confederation { 0..3 } else { 0..1 };
    let confederation = vec(1u32..65_536, 1..4).prop_map(Segment::ConfederationSequence);
    (vec(confederation, confederations), vec(sequence, 0..4)).prop_map(|(mut path, sequences)| {
        path.extend(sequences);
        AsPath(path)
    })
}

pub(crate) fn attributes(
    context: Context,
    next_hop: impl Strategy<Value = NextHop>,
) -> impl Strategy<Value = Attributes> {
    let origin = select([Origin::Igp, Origin::Egp, Origin::Incomplete].as_slice());
    let local_pref = if context.is_external { Just(None).boxed() } else { option::of(any::<u32>()).boxed() };
    let numbers = (option::of(any::<u32>()), local_pref, any::<bool>(), option::of(asn()));
    let communities = (
        btree_set(any::<u32>().prop_map(Community), 0..70),
        btree_set(any::<[u8; 8]>().prop_map(ExtendedCommunity), 0..4),
        btree_set(any::<[u32; 3]>().prop_map(LargeCommunity), 0..4),
    );
    let aggregator = option::of((asn(), any::<Ipv4Addr>()));
    let reflection = if context.is_external {
        Just((None, Vec::new())).boxed()
    } else {
        (option::of(any::<Ipv4Addr>()), vec(any::<Ipv4Addr>(), 0..80)).boxed()
    };
    (origin, as_path(context), next_hop, numbers, aggregator, communities, reflection).prop_map(
        |(origin, as_path, next_hop, numbers, aggregator, communities, reflection)| {
            let (originator_id, cluster_list) = reflection;
            let (med, local_pref, is_atomic_aggregate, only_to_customer) = numbers;
            let (communities, extended_communities, large_communities) = communities;
            Attributes {
                origin,
                as_path,
                next_hop,
                med,
                local_pref,
                is_atomic_aggregate,
                aggregator,
                communities,
                originator_id,
                cluster_list,
                extended_communities,
                large_communities,
                only_to_customer,
            }
        },
    )
}
