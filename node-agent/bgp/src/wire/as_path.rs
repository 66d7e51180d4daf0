//! Codec of AS paths with 2-octet and 4-octet AS numbers (RFC 4271 §4.3, RFC 6793 §4.2). Also merges
//! `AS_PATH` and `AS4_PATH`.

use super::{Context, Malformation, open::AS_TRANS, reader::Reader};
use crate::attributes::{AsPath, Segment};

const SET: u8 = 1;
const SEQUENCE: u8 = 2;
const CONFEDERATION_SEQUENCE: u8 = 3;
const CONFEDERATION_SET: u8 = 4;

/// Maximum number of AS numbers in a segment, limited by the one-byte count.
const SEGMENT_MAX: usize = u8::MAX as usize;

/// Size of an AS number in `AS_PATH`: two or four octets (RFC 6793).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Two,
    Four,
}

impl Width {
    pub(super) const fn of(context: &Context) -> Self {
        if context.four_octet_as { Self::Four } else { Self::Two }
    }

    pub(super) fn read(self, reader: &mut Reader<'_>) -> Option<u32> {
        match self {
            Self::Two => reader.u16().map(u32::from),
            Self::Four => reader.u32(),
        }
    }

    /// Writes an AS number, or [`AS_TRANS`] if the number does not fit.
    pub(super) fn write(self, out: &mut Vec<u8>, asn: u32) {
        match self {
            Self::Two => out.extend(u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes()),
            Self::Four => out.extend(asn.to_be_bytes()),
        }
    }
}

/// Decodes the value of an `AS_PATH` attribute whose AS numbers have the given width. The value of an
/// `AS4_PATH` is decoded in the same way, with width `Four`.
pub(super) fn read(bytes: &[u8], width: Width) -> Result<AsPath, Malformation> {
    let mut reader = Reader::new(bytes);
    let mut segments = Vec::new();
    while !reader.is_empty() {
        segments.push(segment(&mut reader, width)?);
    }
    Ok(AsPath(segments))
}

fn segment(reader: &mut Reader<'_>, width: Width) -> Result<Segment, Malformation> {
    let (kind, count) = reader.u8().zip(reader.u8()).ok_or(Malformation::SegmentLength)?;
    let make = match kind {
        SET => Segment::Set,
        SEQUENCE => Segment::Sequence,
        CONFEDERATION_SEQUENCE => Segment::ConfederationSequence,
        CONFEDERATION_SET => Segment::ConfederationSet,
        _ => return Err(Malformation::SegmentType),
    };
    if count == 0 {
        return Err(Malformation::SegmentLength);
    }
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(width.read(reader).ok_or(Malformation::SegmentLength)?);
    }
    if numbers.contains(&0) { Err(Malformation::AsZero) } else { Ok(make(numbers)) }
}

/// Returns an error if the path contains segments that this peer must not send: sets, or confederation
/// segments from a peer outside of the confederation.
pub(super) fn check(path: &AsPath, context: &Context) -> Result<(), Malformation> {
    for segment in &path.0 {
        match segment {
            Segment::Sequence(_) => {}
            Segment::ConfederationSequence(_) if context.is_confederation => {}
            Segment::ConfederationSequence(_) => return Err(Malformation::ConfederationSegment),
            Segment::ConfederationSet(_) if !context.is_confederation => {
                return Err(Malformation::ConfederationSegment);
            }
            Segment::Set(_) | Segment::ConfederationSet(_) => return Err(Malformation::AsSet),
        }
    }
    Ok(())
}

/// Encodes an AS path. Segments that are too long are split, and empty segments are omitted.
pub(super) fn write(out: &mut Vec<u8>, path: &AsPath, width: Width) {
    for segment in &path.0 {
        let (kind, numbers) = match segment {
            Segment::Set(numbers) => (SET, numbers),
            Segment::Sequence(numbers) => (SEQUENCE, numbers),
            Segment::ConfederationSequence(numbers) => (CONFEDERATION_SEQUENCE, numbers),
            Segment::ConfederationSet(numbers) => (CONFEDERATION_SET, numbers),
        };
        for numbers in numbers.chunks(SEGMENT_MAX) {
            out.extend([kind, u8::try_from(numbers.len()).expect("a chunk has at most 255 elements")]);
            numbers.iter().for_each(|asn| width.write(out, *asn));
        }
    }
}

/// Returns the `AS4_PATH` to send in addition to a 2-octet `AS_PATH`, or `None` if all numbers fit (RFC 6793
/// §4.2.2).
pub(super) fn beside_two_octets(path: &AsPath) -> Option<AsPath> {
    let without = without_confederations(path);
    let is_large = |asn: &u32| u16::try_from(*asn).is_err();
    without.0.iter().any(|segment| segment.numbers().iter().any(is_large)).then_some(without)
}

/// Removes confederation segments, which are invalid in an `AS4_PATH` (RFC 6793 §6).
pub(super) fn without_confederations(path: &AsPath) -> AsPath {
    AsPath(path.0.iter().filter(|segment| !segment.is_confederation()).cloned().collect())
}

/// Merges a 2-octet `AS_PATH` with an `AS4_PATH`: the result is the `AS4_PATH`, preceded by the leading ASes
/// of the `AS_PATH` that the `AS4_PATH` lacks. An `AS4_PATH` that is longer than the `AS_PATH` is ignored
/// (RFC 6793 §4.2.3).
pub(super) fn merge(two: AsPath, mut four: AsPath) -> AsPath {
    let Some(mut missing) = two.length().checked_sub(four.length()) else { return two };
    let mut merged = Vec::new();
    for segment in two.0 {
        let length = segment.length();
        match segment {
            // Leading confederation segments, and those adjacent to segments taken from `AS_PATH`.
            Segment::ConfederationSequence(_) | Segment::ConfederationSet(_) => merged.push(segment),
            Segment::Sequence(mut numbers) if length > missing => {
                numbers.truncate(missing);
                prepend(&mut four, numbers);
                break;
            }
            Segment::Set(_) if length > missing => break,
            Segment::Sequence(_) | Segment::Set(_) => {
                missing -= length;
                merged.push(segment);
            }
        }
    }
    merged.extend(four.0);
    AsPath(merged)
}

/// Prepends AS numbers to a path. The numbers are added to the first sequence of the path if they fit.
fn prepend(path: &mut AsPath, mut numbers: Vec<u32>) {
    match path.0.first_mut() {
        _ if numbers.is_empty() => {}
        Some(Segment::Sequence(first)) if first.len() + numbers.len() <= SEGMENT_MAX => {
            numbers.append(first);
            *first = numbers;
        }
        Some(_) | None => path.0.insert(0, Segment::Sequence(numbers)),
    }
}
