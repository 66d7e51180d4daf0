//! Interpreter of nf_tables rules: follows the packet mark and the conntrack state from the registers to
//! comparisons and verdicts. Does no I/O. A rule with an expression that is not interpreted gets the
//! condition `Other`.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use kernel::{
    netlink::wire::{Attribute, AttributeIter, MalformedMessage},
    nftables::uapi,
};

use super::{
    captures::{Capture, TrafficScope},
    chains::{Condition, Effect, MarkUse, Rule},
};

// `linux/netfilter/nf_tables.h`.
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;
const NFT_META_MARK: u32 = 3;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Offsets of the destination address in the IPv4 and IPv6 header, and of the destination port.
const IPV4_DESTINATION: u32 = 16;
const IPV6_DESTINATION: u32 = 24;
const PORT_DESTINATION: u32 = 2;
const NFTA_NAT_TYPE: u16 = 1;
const NFT_NAT_DNAT: u32 = 1;
const NFT_CMP_EQ: u32 = 0;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_STATUS: u32 = 2;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_BITWISE_SREG: u16 = 1;
const NFTA_BITWISE_DREG: u16 = 2;
const NFTA_BITWISE_MASK: u16 = 4;
const NFTA_BITWISE_XOR: u16 = 5;
const NFTA_BITWISE_OP: u16 = 6;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_NEQ: u32 = 1;
const NFTA_EXTHDR_TYPE: u16 = 2;
const NFTA_EXTHDR_OP: u16 = 6;
const NFTA_EXTHDR_SREG: u16 = 7;
const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
const TCPOPT_MAXSEG: u8 = 2;
const NFTA_TARGET_NAME: u16 = 1;
const NFTA_TARGET_INFO: u16 = 3;
const NFT_RETURN: i32 = -5;
/// First number of the 4-byte registers. Registers of 16 bytes have lower numbers and share their memory.
const NFT_REG32_00: u32 = 8;
/// Bit of the conntrack status for DNAT: `IPS_DST_NAT` of `linux/netfilter/nf_conntrack_common.h`.
const IPS_DST_NAT: u32 = 0x20;
/// Bit of the conntrack state for established connections: `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`.
const STATE_ESTABLISHED: u32 = 2;

/// Value of a register while a rule is interpreted. Other values are not tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegisterValue {
    /// Packet mark after the operation `(mark & and) ^ xor`.
    Mark { and: u32, xor: u32 },
    /// Conntrack status (`ct status`) of the packet, masked with these bits.
    Status(u32),
    /// Conntrack state (`ct state`) of the packet, masked with these bits.
    State(u32),
    /// Constant number.
    Number(u32),
    /// First bits of the destination address, as many as given.
    Destination { is_v6: bool, bits: u8 },
    /// Destination port.
    DestinationPort,
    /// Number of the transport protocol.
    Protocol,
    /// Number of the address family of the packet.
    AddressFamily,
}

#[derive(Debug)]
struct ExpressionReader {
    registers: BTreeMap<u32, RegisterValue>,
    rule: Rule,
}

/// Interprets the expressions of a rule and returns its condition, its effect and its use of the packet mark.
/// `shown` is the text of the rule in messages.
pub(super) fn rule(shown: String, expressions: Option<AttributeIter<'_>>) -> Result<Rule, MalformedMessage> {
    let rule = Rule {
        shown,
        handle: None,
        condition: Condition::Always,
        scope: TrafficScope::default(),
        effect: Effect::Other,
        marks: Vec::new(),
        clamps: false,
    };
    let mut reader = ExpressionReader { registers: BTreeMap::new(), rule };
    for element in expressions.into_iter().flatten() {
        let (mut name, mut data) = ("", AttributeIter::new(&[]));
        for attribute in element?.nested() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::NFTA_EXPR_NAME => name = attribute.text()?,
                uapi::NFTA_EXPR_DATA => data = attribute.nested(),
                _ => {}
            }
        }
        reader.expression(name, data)?;
    }
    Ok(reader.rule)
}

impl ExpressionReader {
    fn expression(&mut self, name: &str, data: AttributeIter<'_>) -> Result<(), MalformedMessage> {
        match name {
            "counter" | "log" => {}
            "reject" => self.rule.effect = Effect::Drop,
            "meta" => self.meta(&Numbers::read(data)?),
            "ct" => self.ct(&Numbers::read(data)?),
            "immediate" => self.immediate(data)?,
            "bitwise" => self.bitwise(&Numbers::read(data)?)?,
            "cmp" => self.cmp(&Numbers::read(data)?)?,
            "exthdr" => self.option_header(&Numbers::read(data)?),
            "target" => self.target(data)?,
            "payload" => self.payload(&Numbers::read(data)?),
            "notrack" => self.rule.effect = Effect::Captures(Capture::NoTrack),
            "redir" => self.rule.effect = Effect::Captures(Capture::DestinationNat),
            "nat" if Numbers::read(data)?.be32(NFTA_NAT_TYPE) == Some(NFT_NAT_DNAT) => {
                self.rule.effect = Effect::Captures(Capture::DestinationNat);
            }
            _ => {
                self.rule.condition = Condition::Other;
                self.rule.scope.has_other_condition = true;
            }
        }
        Ok(())
    }

    fn meta(&mut self, numbers: &Numbers<'_>) {
        let is_mark = numbers.be32(NFTA_META_KEY) == Some(NFT_META_MARK);
        if let Some(from) = numbers.register(NFTA_META_SREG) {
            let set = match self.registers.get(&from).filter(|_| is_mark) {
                Some(RegisterValue::Number(value)) => {
                    Some(MarkUse::Sets { value: *value, touched: u32::MAX })
                }
                Some(RegisterValue::Mark { and, xor }) => {
                    Some(MarkUse::Sets { value: *xor, touched: !and | xor })
                }
                Some(
                    RegisterValue::Status(_)
                    | RegisterValue::State(_)
                    | RegisterValue::Destination { .. }
                    | RegisterValue::DestinationPort
                    | RegisterValue::Protocol
                    | RegisterValue::AddressFamily,
                )
                | None => None,
            };
            self.rule.marks.extend(set);
        } else if let Some(to) = numbers.register(NFTA_META_DREG) {
            let held = match numbers.be32(NFTA_META_KEY) {
                Some(NFT_META_MARK) => Some(RegisterValue::Mark { and: u32::MAX, xor: 0 }),
                Some(NFT_META_NFPROTO) => Some(RegisterValue::AddressFamily),
                Some(NFT_META_L4PROTO) => Some(RegisterValue::Protocol),
                Some(_) | None => None,
            };
            self.hold(to, held);
        }
    }

    fn payload(&mut self, numbers: &Numbers<'_>) {
        self.rule.condition = Condition::Other;
        let Some(to) = numbers.register(NFTA_PAYLOAD_DREG) else {
            self.rule.scope.has_other_condition = true;
            return;
        };
        let [base, offset, length] =
            [NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN].map(|kind| numbers.be32(kind));
        let bits = u8::try_from(length.unwrap_or(0).saturating_mul(8)).unwrap_or(0);
        let held = match (base, offset) {
            (Some(NETWORK_HEADER), Some(IPV4_DESTINATION)) if bits <= 32 => {
                Some(RegisterValue::Destination { is_v6: false, bits })
            }
            (Some(NETWORK_HEADER), Some(IPV6_DESTINATION)) => {
                Some(RegisterValue::Destination { is_v6: true, bits })
            }
            (Some(TRANSPORT_HEADER), Some(PORT_DESTINATION)) if bits == 16 => {
                Some(RegisterValue::DestinationPort)
            }
            _ => None,
        };
        self.hold(to, held);
    }

    /// Adds the condition that a register equals a constant to the traffic that the rule matches.
    fn narrow(&mut self, held: Option<RegisterValue>, operator: u32, bytes: &[u8]) {
        let scope = &mut self.rule.scope;
        match (held.filter(|_| operator == NFT_CMP_EQ), bytes) {
            (Some(RegisterValue::Destination { is_v6, bits }), bytes) if scope.destination.is_none() => {
                let network = destination(is_v6, bits, bytes);
                scope.has_other_condition |= network.is_none();
                scope.destination = network;
            }
            (Some(RegisterValue::DestinationPort), [high, low]) if scope.ports.is_none() => {
                let port = u16::from_be_bytes([*high, *low]);
                scope.ports = Some((port, port));
            }
            (Some(RegisterValue::Protocol), [number, ..]) if scope.protocol.is_none() => {
                scope.protocol = Some(*number);
            }
            // Destinations and the table's family are compared as well.
            (Some(RegisterValue::AddressFamily), _) => {}
            _ => scope.has_other_condition = true,
        }
    }

    fn ct(&mut self, numbers: &Numbers<'_>) {
        let Some(to) = numbers.register(NFTA_CT_DREG) else { return };
        self.hold(
            to,
            match numbers.be32(NFTA_CT_KEY) {
                Some(NFT_CT_STATE) => Some(RegisterValue::State(u32::MAX)),
                Some(NFT_CT_STATUS) => Some(RegisterValue::Status(u32::MAX)),
                Some(_) | None => None,
            },
        );
    }

    fn immediate(&mut self, data: AttributeIter<'_>) -> Result<(), MalformedMessage> {
        let numbers = Numbers::read(data)?;
        let Some(content) = numbers.attribute(NFTA_IMMEDIATE_DATA) else { return Ok(()) };
        for part in content.nested() {
            let part = part?;
            if part.kind == uapi::NFTA_DATA_VERDICT {
                self.rule.effect = verdict(part.nested())?;
            } else if let Some(to) = numbers.register(NFTA_IMMEDIATE_DREG) {
                self.hold(to, part.ne32().ok().map(RegisterValue::Number));
            }
        }
        Ok(())
    }

    fn bitwise(&mut self, numbers: &Numbers<'_>) -> Result<(), MalformedMessage> {
        let Some(to) = numbers.register(NFTA_BITWISE_DREG) else { return Ok(()) };
        let from = numbers.register(NFTA_BITWISE_SREG).and_then(|from| self.registers.get(&from).copied());
        let mask = data_of(numbers.attribute(NFTA_BITWISE_MASK))?;
        let xor = data_of(numbers.attribute(NFTA_BITWISE_XOR))?;
        let is_plain = numbers.be32(NFTA_BITWISE_OP).unwrap_or(0) == 0;
        let masked = bytes_of(numbers.attribute(NFTA_BITWISE_MASK))?;
        if let (Some(RegisterValue::Destination { is_v6, .. }), true) = (from, is_plain) {
            let ones: u32 = masked.iter().map(|byte| byte.count_ones()).sum();
            let bits = u8::try_from(ones).unwrap_or(u8::MAX);
            self.hold(to, Some(RegisterValue::Destination { is_v6, bits }));
            return Ok(());
        }
        let held = match (from.filter(|_| is_plain), mask, xor) {
            (Some(RegisterValue::Mark { and, xor: before }), Some(mask), Some(xor)) => {
                Some(RegisterValue::Mark { and: and & mask, xor: (before & mask) ^ xor })
            }
            (Some(RegisterValue::Status(bits)), Some(mask), Some(0)) => {
                Some(RegisterValue::Status(bits & mask))
            }
            (Some(RegisterValue::State(bits)), Some(mask), Some(0)) => {
                Some(RegisterValue::State(bits & mask))
            }
            _ => None,
        };
        self.hold(to, held);
        Ok(())
    }

    fn cmp(&mut self, numbers: &Numbers<'_>) -> Result<(), MalformedMessage> {
        let held = numbers.register(NFTA_CMP_SREG).and_then(|from| self.registers.get(&from).copied());
        let value = data_of(numbers.attribute(NFTA_CMP_DATA))?;
        let bytes = bytes_of(numbers.attribute(NFTA_CMP_DATA))?;
        self.narrow(held, numbers.be32(NFTA_CMP_OP).unwrap_or(NFT_CMP_EQ), bytes);
        let is_any = numbers.be32(NFTA_CMP_OP) == Some(NFT_CMP_NEQ) && value == Some(0);
        let states = match held {
            Some(RegisterValue::Mark { and, xor }) => {
                // The comparison applies to the transformed mark.
                let tests = value.map(|value| MarkUse::Tests { value: value ^ xor, mask: and });
                self.rule.marks.extend(tests);
                None
            }
            Some(RegisterValue::Status(bits)) if is_any => {
                Some(Condition::States { translated: bits & IPS_DST_NAT != 0, established: false })
            }
            Some(RegisterValue::State(bits)) if is_any => {
                Some(Condition::States { translated: false, established: bits & STATE_ESTABLISHED != 0 })
            }
            Some(
                RegisterValue::Status(_)
                | RegisterValue::State(_)
                | RegisterValue::Number(_)
                | RegisterValue::Destination { .. }
                | RegisterValue::DestinationPort
                | RegisterValue::Protocol
                | RegisterValue::AddressFamily,
            )
            | None => None,
        };
        self.rule.condition = match (self.rule.condition, states) {
            (Condition::Always, Some(states)) => states,
            (Condition::Always | Condition::States { .. } | Condition::Other, _) => Condition::Other,
        };
        Ok(())
    }

    fn option_header(&mut self, numbers: &Numbers<'_>) {
        let kind = numbers.attribute(NFTA_EXTHDR_TYPE).and_then(|kind| kind.value.first());
        let is_segment_size =
            numbers.be32(NFTA_EXTHDR_OP) == Some(NFT_EXTHDR_OP_TCPOPT) && kind == Some(&TCPOPT_MAXSEG);
        self.rule.clamps |= is_segment_size && numbers.register(NFTA_EXTHDR_SREG).is_some();
        self.rule.scope.has_other_condition = true;
        self.rule.condition = Condition::Other;
    }

    /// Interprets a `target` expression, which contains an iptables target extension.
    fn target(&mut self, data: AttributeIter<'_>) -> Result<(), MalformedMessage> {
        let numbers = Numbers::read(data)?;
        let name = numbers.attribute(NFTA_TARGET_NAME).map_or(Ok(""), |name| name.text())?;
        let info = numbers.attribute(NFTA_TARGET_INFO).map_or(&[][..], |info| info.value);
        match name {
            "REJECT" => self.rule.effect = Effect::Drop,
            "TCPMSS" => self.rule.clamps = true,
            "DNAT" | "REDIRECT" => self.rule.effect = Effect::Captures(Capture::DestinationNat),
            "NOTRACK" => self.rule.effect = Effect::Captures(Capture::NoTrack),
            // `struct xt_mark_tginfo2`: mark, then mask.
            "MARK" => {
                if let Some([a, b, c, d, e, f, g, h]) = info.first_chunk().copied() {
                    let (value, mask) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
                    self.rule.marks.push(MarkUse::Sets { value, touched: value | mask });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn hold(&mut self, register: u32, held: Option<RegisterValue>) {
        match held {
            Some(held) => self.registers.insert(register, held),
            None => self.registers.remove(&register),
        };
    }
}

fn verdict(parts: AttributeIter<'_>) -> Result<Effect, MalformedMessage> {
    let (mut code, mut chain) = (None, "");
    for part in parts {
        let part = part?;
        match part.kind {
            uapi::NFTA_VERDICT_CODE => code = Some(part.be32()?.cast_signed()),
            uapi::NFTA_VERDICT_CHAIN => chain = part.text()?,
            _ => {}
        }
    }
    Ok(match code {
        Some(uapi::NF_DROP) => Effect::Drop,
        Some(code) if code.cast_unsigned() == uapi::NF_ACCEPT => Effect::Accept,
        Some(NFT_RETURN) => Effect::Return,
        Some(uapi::NFT_JUMP | uapi::NFT_GOTO) => Effect::Jump(chain.to_owned()),
        Some(_) | None => Effect::Other,
    })
}

/// Returns the network of the destinations whose first `bits` bits are those of `bytes`; `None` if it is malformed.
fn destination(is_v6: bool, bits: u8, bytes: &[u8]) -> Option<IpNet> {
    let mut octets = [0; 16];
    octets.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let address =
        if is_v6 { IpAddr::from(octets) } else { IpAddr::from(<[u8; 4]>::try_from(octets.get(..4)?).ok()?) };
    IpNet::new(address, bits).ok()
}

/// Returns the bytes of the constant in a data attribute; empty if there is none.
fn bytes_of<'a>(attribute: Option<Attribute<'a>>) -> Result<&'a [u8], MalformedMessage> {
    for part in attribute.into_iter().flat_map(|attribute| attribute.nested()) {
        let part = part?;
        if part.kind == uapi::NFTA_DATA_VALUE {
            return Ok(part.value);
        }
    }
    Ok(&[])
}

/// Returns the constant in a data attribute, or `None` if the attribute is missing or its constant is not
/// four bytes long.
fn data_of(attribute: Option<Attribute<'_>>) -> Result<Option<u32>, MalformedMessage> {
    for part in attribute.iter().flat_map(Attribute::nested) {
        let part = part?;
        if part.kind == uapi::NFTA_DATA_VALUE {
            return Ok(part.ne32().ok());
        }
    }
    Ok(None)
}

/// Netlink attributes of one nf_tables expression, with access by attribute type.
struct Numbers<'a>(Vec<Attribute<'a>>);

impl<'a> Numbers<'a> {
    fn read(data: AttributeIter<'a>) -> Result<Self, MalformedMessage> {
        data.collect::<Result<_, _>>().map(Self)
    }

    fn attribute(&self, kind: u16) -> Option<Attribute<'a>> {
        self.0.iter().find(|attribute| attribute.kind == kind).copied()
    }

    fn be32(&self, kind: u16) -> Option<u32> {
        self.attribute(kind)?.be32().ok()
    }

    /// Returns the register number in an attribute of type `kind`, or `None` if the attribute is missing.
    /// The number of a 16-byte register is converted to that of the 4-byte register at its start.
    fn register(&self, kind: u16) -> Option<u32> {
        let number = self.be32(kind)?;
        Some(if number < NFT_REG32_00 { NFT_REG32_00 + number.saturating_sub(1) * 4 } else { number })
    }
}
