//! Range of node ports as a flag.

use std::{ops::RangeInclusive, str::FromStr};

/// Range by default.
const DEFAULT: RangeInclusive<u16> = 30000..=32767;

/// Inclusive range of ports, parsed from text such as `30000-32767`. The default is 30000 to 32767.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRange(pub(super) RangeInclusive<u16>);

impl Default for PortRange {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ports = text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        let (from, to): (u16, u16) =
            ports.ok_or_else(|| "expected FROM-TO, such as 30000-32767".to_owned())?;
        Ok(Self(from..=to))
    }
}
