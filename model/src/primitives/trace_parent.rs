//! Trace context of a request (W3C Trace Context): the identity of the span that caused the work.

use std::{fmt, num::NonZeroU64, num::NonZeroU128, str::FromStr};

use serde::{Deserialize, Serialize};

/// Length of the header `traceparent` of version 00 in characters (W3C Trace Context §3.2).
const LENGTH: usize = 55;
/// Bit of the trace flags of a trace that is recorded (W3C Trace Context §3.2.2.5.1).
const SAMPLED: u8 = 1;

/// Span that caused the work, as in the header `traceparent` (W3C Trace Context §3.2). Text form of version 00:
/// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// Id of the trace, which all spans of the trace share.
    pub trace_id: NonZeroU128,
    /// Id of the span, unique in the trace.
    pub span_id: NonZeroU64,
    /// True if the caller records the trace.
    pub is_sampled: bool,
}

/// Error: a text is no `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a traceparent of W3C Trace Context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct TraceParentError;

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Parses the text of any version. Fields that later versions append are ignored (W3C Trace Context §4.3).
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let mut fields = text.splitn(5, '-');
        let mut field = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits && field.bytes().all(is_digit));
            field.ok_or(TraceParentError)
        };
        let (version, trace_id, span_id, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        if version == "ff" || (version == "00" && text.len() != LENGTH) {
            return Err(TraceParentError);
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().and_then(NonZeroU128::new);
        let span_id = u64::from_str_radix(span_id, 16).ok().and_then(NonZeroU64::new);
        let flags = u8::from_str_radix(flags, 16).map_err(|_| TraceParentError)?;
        Ok(Self {
            trace_id: trace_id.ok_or(TraceParentError)?,
            span_id: span_id.ok_or(TraceParentError)?,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

/// Returns true for a hexadecimal digit. The standard permits lower-case letters only.
const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled))
    }
}

impl TryFrom<String> for TraceParent {
    type Error = TraceParentError;

    fn try_from(text: String) -> Result<Self, TraceParentError> {
        text.parse()
    }
}

impl From<TraceParent> for String {
    fn from(parent: TraceParent) -> Self {
        parent.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_parent_has_the_text_form_of_the_standard() {
        let parent: TraceParent = TEXT.parse().unwrap();
        assert_eq!((parent.span_id.get(), parent.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(parent.to_string(), TEXT);
        // A later version with more fields and other flags.
        let later = TEXT.replacen("00", "cc", 1) + "-more";
        assert_eq!(later.parse(), Ok(parent));
        assert!(!TEXT.replace("-01", "-02").parse::<TraceParent>().unwrap().is_sampled);
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "",
            "00",
            &TEXT[1..],
            &TEXT.to_uppercase(),
            &TEXT.replacen("00", "ff", 1),
            &format!("{TEXT}-more"),
            &format!("{TEXT}0"),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TEXT.replace("00f067aa0ba902b7", "+0f067aa0ba902b7"),
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
        }
    }
}
