//! BGP communities of all three types (RFC 1997, RFC 4360, RFC 8092) and their text forms.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// BGP community.
///
/// Text forms: `65000:100` and the well-known names (`no-export`, `no-advertise`, `no-export-subconfed`,
/// `no-peer`, `blackhole`, `graceful-shutdown`, `accept-own`, `llgr-stale`, `no-llgr`); `large:65000:1:2`, as
/// in MetalLB; `rt:65000:100` and `soo:65000:100` with an AS number or an IPv4 address as first part; other
/// extended communities as `ext:` and 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Community {
    /// Community of 32 bits (RFC 1997).
    Standard(u32),
    /// Extended community of 8 bytes (RFC 4360).
    Extended([u8; 8]),
    /// Large community of three 32-bit numbers (RFC 8092).
    Large([u32; 3]),
}

/// Names and values in the IANA registry of well-known communities.
const NAMES: [(&str, u32); 9] = [
    ("graceful-shutdown", 0xffff_0000),
    ("accept-own", 0xffff_0001),
    ("llgr-stale", 0xffff_0006),
    ("no-llgr", 0xffff_0007),
    ("blackhole", 0xffff_029a),
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("no-peer", 0xffff_ff04),
];
/// Subtype of extended communities that contain a route target (RFC 4360 §4).
const ROUTE_TARGET: u8 = 2;
/// Subtype of extended communities that contain a route origin, also called site of origin (RFC 4360 §5).
const ROUTE_ORIGIN: u8 = 3;

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(value) => match NAMES.iter().find(|(_, named)| named == value) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{}:{}", value >> 16, value & 0xffff),
            },
            Self::Large([global, first, second]) => write!(f, "large:{global}:{first}:{second}"),
            Self::Extended(bytes) => extended(bytes, f),
        }
    }
}

fn extended(bytes: &[u8; 8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [kind, subtype, a, b, c, d, e, last] = *bytes;
    let word = match subtype {
        ROUTE_TARGET => "rt",
        ROUTE_ORIGIN => "soo",
        _ => "",
    };
    match (kind, word) {
        (0, "rt" | "soo") => {
            write!(f, "{word}:{}:{}", u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, last]))
        }
        (1, "rt" | "soo") => write!(f, "{word}:{a}.{b}.{c}.{d}:{}", u16::from_be_bytes([e, last])),
        // In text, an AS number below 65536 means the two-octet form.
        (2, "rt" | "soo") if u32::from_be_bytes([a, b, c, d]) > u32::from(u16::MAX) => {
            write!(f, "{word}:{}:{}", u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, last]))
        }
        _ => {
            f.write_str("ext:")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
    }
}

impl FromStr for Community {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "must be a community such as 65000:100, no-export, large:65000:1:2, rt:65000:100 or ext:0002fde800000064, not `{text}`"
            )
        };
        if let Some((_, value)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Standard(*value));
        }
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts[..] {
            ["large", global, first, second] => number(global)
                .zip(number(first))
                .zip(number(second))
                .map(|((a, b), c)| Self::Large([a, b, c])),
            ["rt", who, value] => administered(ROUTE_TARGET, who, value).map(Self::Extended),
            ["soo", who, value] => administered(ROUTE_ORIGIN, who, value).map(Self::Extended),
            ["ext", digits] => hexadecimal(digits).map(Self::Extended),
            [asn, value] => {
                let (asn, value) = (short(asn), short(value));
                asn.zip(value).map(|(asn, value)| Self::Standard(u32::from(asn) << 16 | u32::from(value)))
            }
            _ => None,
        };
        parsed.ok_or_else(wrong)
    }
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn short(text: &str) -> Option<u16> {
    number(text).and_then(|number| u16::try_from(number).ok())
}

/// Encodes an extended community from its administrator `who` (AS number or IPv4 address) and its value (RFC
/// 4360 §3.1 and §3.2, RFC 5668); `None` if the text is invalid.
fn administered(subtype: u8, who: &str, value: &str) -> Option<[u8; 8]> {
    if let Ok(address) = who.parse::<std::net::Ipv4Addr>() {
        let ([a, b, c, d], [e, f]) = (address.octets(), short(value)?.to_be_bytes());
        return Some([1, subtype, a, b, c, d, e, f]);
    }
    let asn = number(who)?;
    if let Ok(asn) = u16::try_from(asn) {
        let ([a, b], [c, d, e, f]) = (asn.to_be_bytes(), number(value)?.to_be_bytes());
        return Some([0, subtype, a, b, c, d, e, f]);
    }
    let ([a, b, c, d], [e, f]) = (asn.to_be_bytes(), short(value)?.to_be_bytes());
    Some([2, subtype, a, b, c, d, e, f])
}

fn hexadecimal(digits: &str) -> Option<[u8; 8]> {
    let is_good = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_good.then(|| u64::from_str_radix(digits, 16).ok().map(u64::to_be_bytes))?
}

impl TryFrom<String> for Community {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Community> for String {
    fn from(community: Community) -> Self {
        community.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_round_trip_and_refuse_what_is_none() {
        for text in [
            "65000:100",
            "0:0",
            "no-export",
            "blackhole",
            "graceful-shutdown",
            "large:4200000001:1:4294967295",
            "rt:65000:4294967295",
            "rt:4200000001:65535",
            "soo:192.0.2.1:7",
            "ext:030b00000000000a",
        ] {
            assert_eq!(text.parse::<Community>().unwrap().to_string(), text);
        }
        assert_eq!("65535:65281".parse::<Community>().unwrap().to_string(), "no-export");
        for bad in
            ["", "65000", "65536:1", "1:65536", "+1:2", "large:1:2", "rt:4200000001:65536", "ext:00", "1:2:3"]
        {
            assert!(bad.parse::<Community>().unwrap_err().contains("must be a community"), "{bad}");
        }
    }
}
