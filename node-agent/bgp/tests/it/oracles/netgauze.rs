//! Converts messages to the types of `netgauze-bgp-pkt`, to compare both codecs.

use std::{collections::HashMap, net::IpAddr};

use bgp::{
    AsPath, Attributes, Capability, Family, GracefulRestart, Message, Open, Origin, Refresh, RefreshKind,
    Segment, Update, attributes::NextHop, wire::Context,
};
use ipnet::IpNet;
use netgauze_bgp_pkt::{
    BgpMessage,
    capabilities::{
        BgpCapability, ExtendedNextHopEncoding, ExtendedNextHopEncodingCapability, FourOctetAsCapability,
        FqdnCapability, GracefulRestartAddressFamily, GracefulRestartCapability,
        MultiProtocolExtensionsCapability, UnrecognizedCapability,
    },
    community::{Community, ExtendedCommunity, LargeCommunity},
    iana::RouteRefreshSubcode,
    nlri::{Ipv4Unicast, Ipv4UnicastAddress, Ipv6Unicast, Ipv6UnicastAddress},
    notification::BgpNotificationMessage,
    open::{BgpOpenMessage, BgpOpenMessageParameter},
    path_attribute as theirs,
    path_attribute::{PathAttribute, PathAttributeValue},
    route_refresh::BgpRouteRefreshMessage,
    update::BgpUpdateMessage,
    wire::deserializer::BgpParsingContext,
};
use netgauze_iana::address_family::{AddressFamily, AddressType};
use netgauze_parse_utils::{
    WritablePdu,
    reader::SliceReader,
    traits::{ParseFrom, ParseFromWithOneInput},
};

/// Returns true for prefixes that netgauze accepts: neither the first nor the last address is multicast.
pub(crate) fn is_unicast(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(net) => Ipv4Unicast::from_net(*net).is_ok(),
        IpNet::V6(net) => Ipv6Unicast::from_net(*net).is_ok(),
    }
}

pub(crate) fn read(bytes: &[u8], context: &Context) -> Result<BgpMessage, String> {
    let (labels, paths) = (HashMap::new(), HashMap::new());
    let mut parsing = BgpParsingContext::new(context.four_octet_as, labels, paths, true, true, true, true);
    BgpMessage::parse(&mut SliceReader::new(bytes), &mut parsing).map_err(|error| error.to_string())
}

pub(crate) fn write(message: &BgpMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes).unwrap();
    bytes
}

/// Returns the BGP Role that netgauze decodes from an OPEN.
pub(crate) fn role_read(bytes: &[u8], context: &Context) -> String {
    let Ok(BgpMessage::Open(open)) = read(bytes, context) else { panic!("no OPEN") };
    let Some(BgpCapability::BgpRole(role)) = open.capabilities().first().copied().cloned() else {
        panic!("no role")
    };
    format!("{:?}", role.role())
}

/// Converts a message to the type of netgauze; returns `None` if netgauze cannot represent it.
pub(crate) fn said(message: &Message, context: &Context) -> Option<BgpMessage> {
    Some(match message {
        Message::Open(open) => BgpMessage::Open(say_open(open)?),
        Message::Update(update) => {
            let attributes = update.attributes.as_ref();
            let communities = attributes.map(|attributes| &attributes.extended_communities);
            if communities.into_iter().flatten().any(|community| !is_written_as_read(&community.0)) {
                return None;
            }
            BgpMessage::Update(say_update(update, context))
        }
        // Converted by its own reader, because its type has a variant for each error.
        Message::Notification(notification) => {
            let body = [&[notification.code, notification.subcode], notification.data.as_slice()].concat();
            BgpMessage::Notification(BgpNotificationMessage::parse(&mut SliceReader::new(&body)).unwrap())
        }
        Message::Keepalive => BgpMessage::KeepAlive,
        Message::Refresh(refresh) => BgpMessage::RouteRefresh(say_refresh(refresh)?),
    })
}

fn address_type(family: Family) -> AddressType {
    match family {
        Family::Ipv4Unicast => AddressType::Ipv4Unicast,
        Family::Ipv6Unicast => AddressType::Ipv6Unicast,
    }
}

fn say_refresh(refresh: &Refresh) -> Option<BgpRouteRefreshMessage> {
    let kind = match refresh.kind {
        RefreshKind::Request => RouteRefreshSubcode::NormalRequest,
        RefreshKind::Begin => RouteRefreshSubcode::BeginningOfRouteRefresh,
        RefreshKind::End => RouteRefreshSubcode::EndOfRouteRefresh,
        // netgauze rejects subtypes that must be ignored (RFC 7313 §5).
        RefreshKind::Unknown(_) => return None,
    };
    Some(BgpRouteRefreshMessage::new(address_type(refresh.family?), kind))
}

fn say_open(open: &Open) -> Option<BgpOpenMessage> {
    let Open { asn, hold_time, router_id, capabilities } = open;
    let capabilities: Option<Vec<_>> = capabilities.iter().map(say_capability).collect();
    let capabilities = capabilities?;
    let parameters = if capabilities.is_empty() {
        vec![]
    } else {
        vec![BgpOpenMessageParameter::new_capabilities(capabilities)]
    };
    Some(BgpOpenMessage::new(u16::try_from(*asn).unwrap_or(23_456), *hold_time, *router_id, parameters))
}

fn say_capability(capability: &Capability) -> Option<BgpCapability> {
    Some(match capability {
        Capability::MultiProtocol(family) => BgpCapability::MultiProtocolExtensions(
            MultiProtocolExtensionsCapability::new(address_type(*family)),
        ),
        Capability::RouteRefresh => BgpCapability::RouteRefresh,
        Capability::ExtendedNextHop(families) => {
            let encodings = families
                .iter()
                .map(|family| ExtendedNextHopEncoding::new(address_type(*family), AddressFamily::IPv6))
                .collect::<Vec<_>>();
            BgpCapability::ExtendedNextHopEncoding(ExtendedNextHopEncodingCapability::new(encodings))
        }
        Capability::ExtendedMessage => BgpCapability::ExtendedMessage,
        // Wrong numbers, see `netgauze_mistakes_roles`.
        Capability::Role(_) => return None,
        Capability::GracefulRestart(GracefulRestart {
            is_restarted,
            notification,
            restart_time,
            families,
        }) => {
            let families = families
                .iter()
                .map(|(family, forwards)| GracefulRestartAddressFamily::new(*forwards, address_type(*family)))
                .collect::<Vec<_>>();
            let restart =
                GracefulRestartCapability::new(*is_restarted, *notification, *restart_time, families);
            BgpCapability::GracefulRestartCapability(restart)
        }
        Capability::FourOctetAs(asn) => BgpCapability::FourOctetAs(FourOctetAsCapability::new(*asn)),
        Capability::EnhancedRouteRefresh => BgpCapability::EnhancedRouteRefresh,
        Capability::HostName { host, domain } => {
            BgpCapability::Fqdn(FqdnCapability::new(host.clone().into(), domain.clone().into()))
        }
        Capability::Unknown { code, value } => {
            BgpCapability::Unrecognized(UnrecognizedCapability::new(*code, value.clone()))
        }
    })
}

fn ipv4(prefixes: &[IpNet]) -> Vec<Ipv4UnicastAddress> {
    let net = |prefix: &IpNet| match prefix {
        IpNet::V4(net) => Some(Ipv4UnicastAddress::new_no_path_id(Ipv4Unicast::from_net(*net).unwrap())),
        IpNet::V6(_) => None,
    };
    prefixes.iter().filter_map(net).collect()
}

fn ipv6(prefixes: &[IpNet]) -> Vec<Ipv6UnicastAddress> {
    let net = |prefix: &IpNet| match prefix {
        IpNet::V4(_) => None,
        IpNet::V6(net) => Some(Ipv6UnicastAddress::new(None, Ipv6Unicast::from_net(*net).unwrap())),
    };
    prefixes.iter().filter_map(net).collect()
}

fn say_update(update: &Update, context: &Context) -> BgpUpdateMessage {
    let Update { withdrawn, announced, attributes, end_of_rib, foreign: _ } = update;
    let mut list = Vec::new();
    let unreach = ipv6(withdrawn);
    if !unreach.is_empty() || *end_of_rib == Some(Family::Ipv6Unicast) {
        let nlri = unreach.into();
        let is_extended = end_of_rib.is_none();
        list.push(attribute(
            true,
            false,
            is_extended,
            PathAttributeValue::MpUnreach(theirs::MpUnreach::Ipv6Unicast { nlri }),
        ));
    }
    let mut body = ipv4(announced);
    if let Some(attributes) = attributes {
        if let NextHop::V6 { global, link_local } = attributes.next_hop {
            let reach = if body.is_empty() {
                theirs::MpReach::Ipv6Unicast {
                    next_hop_global: global,
                    next_hop_local: link_local,
                    nlri: ipv6(announced).into(),
                }
            } else {
                theirs::MpReach::Ipv4Unicast {
                    next_hop: IpAddr::V6(global),
                    next_hop_local: link_local,
                    nlri: std::mem::take(&mut body).into(),
                }
            };
            list.push(attribute(true, false, true, PathAttributeValue::MpReach(reach)));
        }
        say_attributes(&mut list, attributes, context);
    }
    BgpUpdateMessage::new(ipv4(withdrawn), list, body)
}

fn attribute(
    optional: bool,
    transitive: bool,
    is_extended: bool,
    value: PathAttributeValue,
) -> PathAttribute {
    PathAttribute::from(optional, transitive, false, is_extended, value).unwrap()
}

fn say_attributes(list: &mut Vec<PathAttribute>, attributes: &Attributes, context: &Context) {
    let Attributes {
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
    } = attributes;
    let mut put = |optional: bool, transitive: bool, value: PathAttributeValue| {
        let short = attribute(optional, transitive, false, value.clone());
        let is_long = short.len() > 3 + 255;
        list.push(attribute(optional, transitive, is_long, value));
    };
    put(
        false,
        true,
        PathAttributeValue::Origin(match origin {
            Origin::Igp => theirs::Origin::IGP,
            Origin::Egp => theirs::Origin::EGP,
            Origin::Incomplete => theirs::Origin::Incomplete,
        }),
    );
    put(false, true, PathAttributeValue::AsPath(say_path(as_path, context)));
    if let NextHop::V4(address) = next_hop {
        put(false, true, PathAttributeValue::NextHop(theirs::NextHop::new(*address)));
    }
    if let Some(med) = med {
        let med = theirs::MultiExitDiscriminator::new(*med);
        put(true, false, PathAttributeValue::MultiExitDiscriminator(med));
    }
    if let Some(preference) = local_pref {
        let preference = theirs::LocalPreference::new(*preference);
        put(false, true, PathAttributeValue::LocalPreference(preference));
    }
    if *is_atomic_aggregate {
        put(false, true, PathAttributeValue::AtomicAggregate(theirs::AtomicAggregate));
    }
    if let Some((asn, address)) = aggregator {
        let aggregator = if context.four_octet_as {
            theirs::Aggregator::As4Aggregator(theirs::As4Aggregator::new(*asn, *address))
        } else {
            let asn = u16::try_from(*asn).unwrap_or(23_456);
            theirs::Aggregator::As2Aggregator(theirs::As2Aggregator::new(asn, *address))
        };
        put(true, true, PathAttributeValue::Aggregator(aggregator));
    }
    if !communities.is_empty() {
        let communities: Vec<_> = communities.iter().map(|community| Community::new(community.0)).collect();
        put(true, true, PathAttributeValue::Communities(theirs::Communities::new(communities)));
    }
    if let Some(id) = originator_id {
        put(true, false, PathAttributeValue::Originator(theirs::Originator::new(*id)));
    }
    if !cluster_list.is_empty() {
        let ids: Vec<_> = cluster_list.iter().map(|id| theirs::ClusterId::new(*id)).collect();
        put(true, false, PathAttributeValue::ClusterList(theirs::ClusterList::new(ids)));
    }
    if !extended_communities.is_empty() {
        let communities: Vec<_> =
            extended_communities.iter().map(|community| say_extended_community(&community.0)).collect();
        put(
            true,
            true,
            PathAttributeValue::ExtendedCommunities(theirs::ExtendedCommunities::new(communities)),
        );
    }
    if !context.four_octet_as {
        let is_large = |asn: &u32| *asn > 65_535;
        if as_path.0.iter().any(|segment| numbers(segment).iter().any(is_large)) {
            put(true, true, PathAttributeValue::As4Path(theirs::As4Path::new(wide(as_path))));
        }
        // netgauze does not support AS4_AGGREGATOR.
        if let Some((asn, address)) = aggregator
            && is_large(asn)
        {
            let value = [asn.to_be_bytes(), address.octets()].concat();
            put(true, true, PathAttributeValue::UnknownAttribute(theirs::UnknownAttribute::new(18, value)));
        }
    }
    if !large_communities.is_empty() {
        let communities: Vec<_> = large_communities.iter().map(|community| say_large(community.0)).collect();
        put(true, true, PathAttributeValue::LargeCommunities(theirs::LargeCommunities::new(communities)));
    }
    if let Some(asn) = only_to_customer {
        put(true, true, PathAttributeValue::OnlyToCustomer(theirs::OnlyToCustomer::new(*asn)));
    }
}

fn say_large([global, first, second]: [u32; 3]) -> LargeCommunity {
    LargeCommunity::new(global, first, second)
}

/// Converts an extended community by netgauze's own decoder, because the type of netgauze has a variant for
/// each community type.
fn say_extended_community(bytes: &[u8; 8]) -> ExtendedCommunity {
    ExtendedCommunity::parse(&mut SliceReader::new(bytes)).unwrap()
}

/// Returns true unless netgauze encodes a different subtype than it decoded, for example 2/9 as 2/2.
fn is_written_as_read(bytes: &[u8; 8]) -> bool {
    let mut written = Vec::new();
    say_extended_community(bytes).write(&mut written).unwrap();
    written == bytes
}

/// Returns the AS numbers of a segment of a type that netgauze supports.
fn numbers(segment: &Segment) -> &[u32] {
    let Segment::Sequence(numbers) = segment else { panic!("{segment:?}") };
    numbers
}

fn wide(path: &AsPath) -> Vec<theirs::As4PathSegment> {
    let segment = |segment: &Segment| {
        theirs::As4PathSegment::new(theirs::AsPathSegmentType::AsSequence, numbers(segment).to_vec())
    };
    path.0.iter().map(segment).collect()
}

fn say_path(path: &AsPath, context: &Context) -> theirs::AsPath {
    if context.four_octet_as {
        return theirs::AsPath::as4_path_segments(wide(path));
    }
    let narrow = |segment: &Segment| {
        let numbers: Vec<_> =
            numbers(segment).iter().map(|asn| u16::try_from(*asn).unwrap_or(23_456)).collect();
        theirs::As2PathSegment::new(theirs::AsPathSegmentType::AsSequence, numbers)
    };
    theirs::AsPath::as2_path_segments(path.0.iter().map(narrow).collect::<Vec<_>>())
}
