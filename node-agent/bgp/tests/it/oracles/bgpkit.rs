//! Converts messages to the types of `bgpkit-parser`, to compare both codecs.

use std::net::Ipv4Addr;

use bgp::{
    AsPath, Attributes, Capability, Family, GracefulRestart, Message, Open, Origin, Refresh, RefreshKind,
    Role, Segment, Update,
    attributes::NextHop,
    wire::{Context, encode},
};
use bgpkit_parser::{
    models as theirs,
    models::{
        AttrFlags, Attribute, AttributeValue, BgpMessage, NetworkPrefix, NextHopAddress, Nlri, OptParam,
        ParamValue,
        capabilities::{
            BgpCapabilityType, BgpExtendedMessageCapability, BgpRole, BgpRoleCapability,
            ExtendedNextHopCapability, ExtendedNextHopEntry, FourOctetAsCapability,
            GracefulRestartAddressFamily, GracefulRestartCapability, MultiprotocolExtensionsCapability,
            RouteRefreshCapability,
        },
    },
    parser::bgp::messages::parse_bgp_message,
};
use bytes::Bytes;
use ipnet::IpNet;

fn length(context: &Context) -> theirs::AsnLength {
    if context.four_octet_as { theirs::AsnLength::Bits32 } else { theirs::AsnLength::Bits16 }
}

pub(crate) fn read(bytes: &[u8], context: &Context) -> Result<BgpMessage, String> {
    parse_bgp_message(&mut Bytes::copy_from_slice(bytes), false, &length(context))
        .map_err(|error| error.to_string())
}

pub(crate) fn write(message: &BgpMessage, context: &Context) -> Vec<u8> {
    message.encode(length(context)).unwrap().to_vec()
}

/// Returns one flag per segment of a path: true if bgpkit decodes the segment as a sequence outside of a
/// confederation.
pub(crate) fn kinds_read(path: &AsPath, context: &Context) -> Vec<bool> {
    let attributes = Attributes {
        origin: Origin::Igp,
        as_path: path.clone(),
        next_hop: NextHop::V4(Ipv4Addr::LOCALHOST),
        med: None,
        local_pref: None,
        is_atomic_aggregate: false,
        aggregator: None,
        communities: [].into(),
        originator_id: None,
        cluster_list: vec![],
        extended_communities: [].into(),
        large_communities: [].into(),
        only_to_customer: None,
    };
    let announced = vec!["10.0.0.0/8".parse().unwrap()];
    let update = Update { announced, attributes: Some(attributes), ..Update::default() };
    let bytes = encode(&Message::Update(Box::new(update)), context).unwrap();
    let Ok(BgpMessage::Update(read)) = read(&bytes, context) else { panic!("no UPDATE") };
    let is_path = |value: &AttributeValue| matches!(value, AttributeValue::AsPath(_));
    let Some(AttributeValue::AsPath(path)) = read.attributes.into_iter().find(is_path) else {
        panic!("no path")
    };
    let is_sequence =
        |segment: &theirs::AsPathSegment| matches!(segment, theirs::AsPathSegment::AsSequence(_));
    path.segments.iter().map(is_sequence).collect()
}

/// Converts a message to the type of bgpkit; returns `None` if bgpkit cannot represent it.
pub(crate) fn said(message: &Message, context: &Context) -> Option<BgpMessage> {
    Some(match message {
        Message::Open(open) => BgpMessage::Open(say_open(open)?),
        Message::Update(update) => BgpMessage::Update(say_update(update, context)?),
        Message::Notification(notification) => BgpMessage::Notification(theirs::BgpNotificationMessage {
            error: theirs::BgpError::new(notification.code, notification.subcode),
            data: notification.data.clone(),
        }),
        Message::Keepalive => BgpMessage::KeepAlive,
        Message::Refresh(refresh) => BgpMessage::RouteRefresh(say_refresh(refresh)),
    })
}

fn say_refresh(refresh: &Refresh) -> theirs::BgpRouteRefreshMessage {
    let subtype = match refresh.kind {
        RefreshKind::Request => 0,
        RefreshKind::Begin => 1,
        RefreshKind::End => 2,
        RefreshKind::Unknown(other) => other,
    };
    let (afi, safi) = refresh.family.map_or((0, 0), |family| (family.afi(), family.safi()));
    theirs::BgpRouteRefreshMessage { afi, subtype, safi, data: vec![] }
}

fn afi(family: Family) -> theirs::Afi {
    match family {
        Family::Ipv4Unicast => theirs::Afi::Ipv4,
        Family::Ipv6Unicast => theirs::Afi::Ipv6,
    }
}

fn say_open(open: &Open) -> Option<theirs::BgpOpenMessage> {
    let Open { asn, hold_time, router_id, capabilities } = open;
    let capabilities: Option<Vec<_>> = capabilities.iter().map(say_capability).collect();
    let capabilities = capabilities?;
    let parameter = OptParam { param_type: 2, param_value: ParamValue::Capacities(capabilities.clone()) };
    Some(theirs::BgpOpenMessage {
        version: 4,
        asn: theirs::Asn::new_16bit(u16::try_from(*asn).unwrap_or(23_456)),
        hold_time: *hold_time,
        bgp_identifier: *router_id,
        extended_length: false,
        opt_params: if capabilities.is_empty() { vec![] } else { vec![parameter] },
    })
}

fn say_capability(capability: &Capability) -> Option<theirs::Capability> {
    use theirs::CapabilityValue as Value;
    let (ty, value) = match capability {
        Capability::MultiProtocol(family) => (
            BgpCapabilityType::MULTIPROTOCOL_EXTENSIONS_FOR_BGP_4,
            Value::MultiprotocolExtensions(MultiprotocolExtensionsCapability::new(
                afi(*family),
                theirs::Safi::Unicast,
            )),
        ),
        Capability::RouteRefresh => (
            BgpCapabilityType::ROUTE_REFRESH_CAPABILITY_FOR_BGP_4,
            Value::RouteRefresh(RouteRefreshCapability::new()),
        ),
        Capability::ExtendedNextHop(families) => {
            let entry = |family: &Family| ExtendedNextHopEntry {
                nlri_afi: afi(*family),
                nlri_safi: theirs::Safi::Unicast,
                nexthop_afi: theirs::Afi::Ipv6,
            };
            let entries = families.iter().map(entry).collect();
            (
                BgpCapabilityType::EXTENDED_NEXT_HOP_ENCODING,
                Value::ExtendedNextHop(ExtendedNextHopCapability::new(entries)),
            )
        }
        Capability::ExtendedMessage => (
            BgpCapabilityType::BGP_EXTENDED_MESSAGE,
            Value::BgpExtendedMessage(BgpExtendedMessageCapability::new()),
        ),
        Capability::Role(role) => {
            let role = match role {
                Role::Provider => BgpRole::Provider,
                Role::RouteServer => BgpRole::RouteServer,
                Role::RouteServerClient => BgpRole::RouteServerClient,
                Role::Customer => BgpRole::Customer,
                Role::Peer => BgpRole::Peer,
            };
            (BgpCapabilityType::BGP_ROLE, Value::BgpRole(BgpRoleCapability { role }))
        }
        // bgpkit does not support the N bit (RFC 8538).
        Capability::GracefulRestart(GracefulRestart { notification: true, .. }) => return None,
        Capability::GracefulRestart(GracefulRestart {
            is_restarted,
            notification: false,
            restart_time,
            families,
        }) => {
            let families = families
                .iter()
                .map(|(family, forwards)| GracefulRestartAddressFamily {
                    afi: afi(*family),
                    safi: theirs::Safi::Unicast,
                    forwarding_state: *forwards,
                })
                .collect();
            let restart = GracefulRestartCapability::new(*is_restarted, *restart_time, families);
            (BgpCapabilityType::GRACEFUL_RESTART_CAPABILITY, Value::GracefulRestart(restart))
        }
        Capability::FourOctetAs(asn) => (
            BgpCapabilityType::SUPPORT_FOR_4_OCTET_AS_NUMBER_CAPABILITY,
            Value::FourOctetAs(FourOctetAsCapability::new(*asn)),
        ),
        Capability::EnhancedRouteRefresh => {
            (BgpCapabilityType::ENHANCED_ROUTE_REFRESH_CAPABILITY, Value::Raw(vec![]))
        }
        Capability::HostName { host, domain } => {
            let part = |name: &str| [&[u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
            (BgpCapabilityType::FQDN_CAPABILITY, Value::Raw([part(host), part(domain)].concat()))
        }
        Capability::Unknown { code, value } => (BgpCapabilityType::from(*code), Value::Raw(value.clone())),
    };
    Some(theirs::Capability { ty, value })
}

fn prefixes(prefixes: &[IpNet]) -> Vec<NetworkPrefix> {
    prefixes.iter().map(|prefix| NetworkPrefix { prefix: *prefix, path_id: None }).collect()
}

fn say_update(update: &Update, context: &Context) -> Option<theirs::BgpUpdateMessage> {
    let Update { withdrawn, announced, attributes, end_of_rib, foreign: _ } = update;
    // bgpkit takes a default route for path identifiers (RFC 7911) and misparses the rest.
    if withdrawn.iter().chain(announced).any(|prefix| prefix.prefix_len() == 0) {
        return None;
    }
    let mut list = Vec::new();
    let nlri = |family: Family, next_hop: Option<NextHopAddress>, routes: &[IpNet]| Nlri {
        afi: afi(family),
        safi: theirs::Safi::Unicast,
        next_hop,
        prefixes: prefixes(routes),
        labeled_prefixes: None,
        link_state_nlris: None,
        flowspec_nlris: None,
    };
    let ipv6 = Family::Ipv6Unicast;
    let is_withdrawn_by_attribute = withdrawn.first().is_some_and(|prefix| Family::of(prefix) == ipv6);
    if is_withdrawn_by_attribute || *end_of_rib == Some(ipv6) {
        let extended = if end_of_rib.is_none() { AttrFlags::EXTENDED } else { AttrFlags::empty() };
        let value = AttributeValue::MpUnreachNlri(nlri(ipv6, None, withdrawn));
        list.push(Attribute { value, flag: AttrFlags::OPTIONAL | extended });
    }
    let mut in_body = true;
    if let Some(attributes) = attributes {
        if let NextHop::V6 { global, link_local } = attributes.next_hop {
            let next_hop = match link_local {
                Some(link_local) => NextHopAddress::Ipv6LinkLocal(global, link_local),
                None => NextHopAddress::Ipv6(global),
            };
            let family = Family::of(announced.first()?);
            let value = AttributeValue::MpReachNlri(nlri(family, Some(next_hop), announced));
            list.push(Attribute { value, flag: AttrFlags::OPTIONAL | AttrFlags::EXTENDED });
            in_body = false;
        }
        say_attributes(&mut list, attributes, context)?;
    }
    Some(theirs::BgpUpdateMessage {
        withdrawn_prefixes: if is_withdrawn_by_attribute { vec![] } else { prefixes(withdrawn) },
        attributes: list.into(),
        announced_prefixes: if in_body { prefixes(announced) } else { vec![] },
    })
}

fn say_attributes(list: &mut Vec<Attribute>, attributes: &Attributes, context: &Context) -> Option<()> {
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
    let (optional, transitive) = (AttrFlags::OPTIONAL, AttrFlags::TRANSITIVE);
    let both = optional | transitive;
    let mut put = |flag: AttrFlags, bytes: usize, value: AttributeValue| {
        let extended = if bytes > 255 { AttrFlags::EXTENDED } else { AttrFlags::empty() };
        list.push(Attribute { value, flag: flag | extended });
    };
    put(
        transitive,
        1,
        AttributeValue::Origin(match origin {
            Origin::Igp => theirs::Origin::IGP,
            Origin::Egp => theirs::Origin::EGP,
            Origin::Incomplete => theirs::Origin::INCOMPLETE,
        }),
    );
    let path_bytes =
        |width: usize| as_path.0.iter().map(|segment| 2 + width * numbers(segment).len()).sum::<usize>();
    let narrow =
        |asn: u32| if context.four_octet_as { asn } else { u16::try_from(asn).unwrap_or(23_456).into() };
    let width = if context.four_octet_as { 4 } else { 2 };
    put(transitive, path_bytes(width), AttributeValue::AsPath(say_path(as_path, narrow)));
    if let NextHop::V4(address) = next_hop {
        put(transitive, 4, AttributeValue::NextHop((*address).into()));
    }
    if let Some(med) = med {
        put(optional, 4, AttributeValue::MultiExitDiscriminator(*med));
    }
    if let Some(preference) = local_pref {
        put(transitive, 4, AttributeValue::LocalPreference(*preference));
    }
    if *is_atomic_aggregate {
        put(transitive, 0, AttributeValue::AtomicAggregate);
    }
    if let Some((asn, address)) = aggregator {
        put(both, 8, AttributeValue::Aggregator { asn: narrow(*asn).into(), id: *address });
    }
    if !communities.is_empty() {
        let said = communities.iter().map(|community| say_community(community.0)).collect();
        put(both, 4 * communities.len(), AttributeValue::Communities(said));
    }
    if let Some(id) = originator_id {
        put(optional, 4, AttributeValue::OriginatorId(*id));
    }
    if !cluster_list.is_empty() {
        let said = cluster_list.iter().map(|id| id.to_bits()).collect();
        put(optional, 4 * cluster_list.len(), AttributeValue::Clusters(said));
    }
    if !extended_communities.is_empty() {
        // Types that bgpkit decodes, some of them lossily, are not compared.
        if extended_communities.iter().any(|community| matches!(community.0[0], 0..=3 | 0x40..=0x43)) {
            return None;
        }
        let said = extended_communities
            .iter()
            .map(|community| theirs::ExtendedCommunity::Raw(community.0))
            .collect();
        put(both, 8 * extended_communities.len(), AttributeValue::ExtendedCommunities(said));
    }
    if !context.four_octet_as {
        let is_large = |asn: &u32| *asn > 65_535;
        if as_path.0.iter().any(|segment| numbers(segment).iter().any(is_large)) {
            put(both, path_bytes(4), AttributeValue::As4Path(say_path(as_path, |asn| asn)));
        }
        if let Some((asn, address)) = aggregator
            && is_large(asn)
        {
            put(both, 8, AttributeValue::As4Aggregator { asn: (*asn).into(), id: *address });
        }
    }
    if !large_communities.is_empty() {
        let say = |[global, first, second]: [u32; 3]| theirs::LargeCommunity::new(global, [first, second]);
        let said = large_communities.iter().map(|community| say(community.0)).collect();
        put(both, 12 * large_communities.len(), AttributeValue::LargeCommunities(said));
    }
    if let Some(asn) = only_to_customer {
        put(both, 4, AttributeValue::OnlyToCustomer((*asn).into()));
    }
    Some(())
}

fn say_community(community: u32) -> theirs::Community {
    match community {
        0xffff_ff01 => theirs::Community::NoExport,
        0xffff_ff02 => theirs::Community::NoAdvertise,
        0xffff_ff03 => theirs::Community::NoExportSubConfed,
        other => {
            let [high, low] = [other >> 16, other & 0xffff].map(|half| u16::try_from(half).unwrap());
            theirs::Community::Custom(theirs::Asn::new_16bit(high), low)
        }
    }
}

fn numbers(segment: &Segment) -> &[u32] {
    match segment {
        Segment::Sequence(numbers)
        | Segment::Set(numbers)
        | Segment::ConfederationSequence(numbers)
        | Segment::ConfederationSet(numbers) => numbers,
    }
}

fn say_path(path: &AsPath, narrow: impl Fn(u32) -> u32) -> theirs::AsPath {
    let segment = |segment: &Segment| {
        let numbers = numbers(segment).iter().map(|asn| theirs::Asn::new_32bit(narrow(*asn))).collect();
        match segment {
            Segment::Sequence(_) => theirs::AsPathSegment::AsSequence(numbers),
            Segment::Set(_) => theirs::AsPathSegment::AsSet(numbers),
            Segment::ConfederationSequence(_) => theirs::AsPathSegment::ConfedSequence(numbers),
            Segment::ConfederationSet(_) => theirs::AsPathSegment::ConfedSet(numbers),
        }
    };
    theirs::AsPath { segments: path.0.iter().map(segment).collect() }
}
