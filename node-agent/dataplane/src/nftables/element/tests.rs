//! Tests that elements are read back as they were written, and that any other input is rejected.

use model::program::Masquerade;
use proptest::prelude::*;

use super::*;
use crate::nftables::schema::{Choice, Treatment};

fn any_address_of(family: IpFamily) -> impl Strategy<Value = IpAddr> {
    any::<u128>().prop_map(move |number| match family {
        IpFamily::V4 => IpAddr::V4(u32::try_from(number >> 96).unwrap().into()),
        IpFamily::V6 => IpAddr::V6(number.into()),
    })
}

fn any_port() -> impl Strategy<Value = Port> {
    (1..=u16::MAX).prop_map(|number| Port::new(number).unwrap())
}

fn any_frontend(family: IpFamily) -> impl Strategy<Value = Frontend> {
    let protocol = prop::sample::select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
    (any_address_of(family), 0..3u8, protocol, any_port(), any_port()).prop_map(
        move |(address, place, protocol, port, other)| {
            let (destination, ports) = match place {
                0 => (Destination::Address(address), port.into()),
                1 => (Destination::Address(address), PortRange::new(port, other)),
                _ => (Destination::AnyLocal(family), port.into()),
            };
            Frontend { destination, protocol, ports }
        },
    )
}

fn any_dispatch(place: LookupType) -> impl Strategy<Value = FrontendChain> {
    let slots = prop_oneof![
        (1..=TARGETS_MAX).prop_map(|slots| (slots, None)),
        (1..=512u32, (1..=86_400u32).prop_map(Some))
    ];
    let pick = slots.prop_map(move |(slots, affinity_seconds)| {
        FrontendChain::Forward(Pick {
            place,
            masquerade: Masquerade::Always,
            pool: Pool::Elsewhere,
            slots,
            choice: Choice::Random,
            action: Treatment::Translate,
            affinity_seconds,
        })
    });
    let others = vec![
        FrontendChain::Refuse,
        FrontendChain::Discard,
        FrontendChain::BySource(place),
        FrontendChain::Checked(place),
    ];
    prop_oneof![pick, prop::sample::select(others)]
}

fn any_element_of(family: IpFamily) -> impl Strategy<Value = SetElement> {
    let frontend = || any_frontend(family);
    let address = || any_address_of(family);
    let target =
        || (address(), prop::option::of(any_port())).prop_map(|(address, port)| Target { address, port });
    let slot = move || {
        (prop::sample::select(Pool::ALL.to_vec()), 0..TARGETS_MAX)
            .prop_map(|(pool, index)| Slot { pool, index })
    };
    let is_range = |frontend: &Frontend| place(frontend) == LookupType::Range;
    let dispatched = || {
        frontend().prop_flat_map(|frontend| any_dispatch(place(&frontend)).prop_map(move |it| (frontend, it)))
    };
    prop_oneof![
        prop::sample::select(LookupType::ALL.to_vec())
            .prop_flat_map(|place| any_dispatch(place).prop_map(move |it| (place, it)))
            .prop_map(move |(place, it)| SetElement::Chain(
                Numbers { family, place, is_by_source: false },
                it
            )),
        dispatched().prop_map(|(frontend, it)| SetElement::Dispatch(frontend, it)),
        (dispatched(), prop::sample::select(VerdictClass::ALL.to_vec()))
            .prop_map(|((frontend, it), source)| SetElement::DispatchFrom(frontend, source, it)),
        (frontend(), slot(), target())
            .prop_map(|(frontend, slot, target)| SetElement::Slot(frontend, slot, target)),
        (frontend(), slot(), any::<u32>()).prop_map(|(frontend, slot, id)| SetElement::AffinitySlot(
            frontend,
            slot,
            TargetId(id)
        )),
        (frontend(), slot(), any::<u32>(), target()).prop_map(|(frontend, slot, id, target)| {
            SetElement::AffinityTarget(frontend, slot.pool, TargetId(id), target)
        }),
        (frontend(), address(), address())
            .prop_map(|(frontend, first, last)| SetElement::Allowed(frontend, Span { first, last })),
        frontend().prop_filter("a range", is_range).prop_map(SetElement::Range),
        frontend()
            .prop_filter("a single port", |frontend| place(frontend) == LookupType::Address)
            .prop_map(SetElement::Failover),
        address().prop_map(SetElement::VirtualAddress),
        address().prop_map(SetElement::Hairpin),
        (prop::sample::select(NetworkSet::ALL.to_vec()), address(), any::<bool>())
            .prop_map(|(set, address, is_end)| SetElement::Network(set, Edge { address, is_end })),
    ]
}

fn any_element() -> impl Strategy<Value = SetElement> {
    prop_oneof![any_element_of(IpFamily::V4), any_element_of(IpFamily::V6)]
}

proptest! {
    #[test]
    fn elements_are_read_back_as_written(element in any_element()) {
        let (key, bytes) = (element.key(), element.value());
        let name = element.chain().map(|dispatch| dispatch.chain().to_string());
        let value = match (&bytes, &name) {
            (Some(bytes), _) => RawValue::Bytes(bytes),
            (None, Some(name)) => RawValue::Goto(name),
            (None, None) => RawValue::None,
        };
        let is_end = matches!(element, SetElement::Network(_, Edge { is_end: true, .. }));
        let raw = RawElement { key: &key.low, key_end: key.high.as_deref(), value, is_end, packets: 0 };
        prop_assert_eq!(SetElement::parse(element.set(), &raw), Some(element));
    }

    #[test]
    fn strange_keys_are_refused_without_panic(
        key in prop::collection::vec(any::<u8>(), 0..48),
        end in prop::option::of(prop::collection::vec(any::<u8>(), 0..48)),
        value in prop::collection::vec(any::<u8>(), 0..24),
    ) {
        for set in SetId::all() {
            for value in [RawValue::Bytes(&value), RawValue::None, RawValue::Goto("refuse")] {
                let raw = RawElement { key: &key, key_end: end.as_deref(), value, is_end: false, packets: 0 };
                if let Some(element) = SetElement::parse(set, &raw) {
                    prop_assert_eq!(element.key().low, key.clone());
                    prop_assert_eq!(element.set(), set);
                }
            }
        }
    }
}
