//! AS paths in both widths (RFC 4271 §4.3, RFC 6793 §4.2), and the one that two of them make.

use super::{Context, Malformation, open::AS_TRANS, reader::Reader};
use crate::attributes::{AsPath, Segment};

const SET: u8 = 1;
const SEQUENCE: u8 = 2;
const CONFEDERATION_SEQUENCE: u8 = 3;
const CONFEDERATION_SET: u8 = 4;

/// The most AS numbers of a segment, which counts them in one byte.
const SEGMENT_MAX: usize = u8::MAX as usize;

/// Octets of an AS number.
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

    /// What does not fit becomes [`AS_TRANS`].
    pub(super) fn write(self, out: &mut Vec<u8>, asn: u32) {
        match self {
            Self::Two => out.extend(u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes()),
            Self::Four => out.extend(asn.to_be_bytes()),
        }
    }
}

/// Reads an `AS_PATH`, or an `AS4_PATH` with a width of four.
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

/// Whether this peer may have sent the path.
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

/// Writes a path. Segments with more AS numbers than one can hold become several; empty ones are left out.
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

/// What an `AS4_PATH` beside an `AS_PATH` of two octets has to hold; `None` when nothing is lost without (RFC 6793 §4.2.2).
pub(super) fn beside_two_octets(path: &AsPath) -> Option<AsPath> {
    let without = without_confederations(path);
    let is_large = |asn: &u32| u16::try_from(*asn).is_err();
    without.0.iter().any(|segment| numbers(segment).iter().any(is_large)).then_some(without)
}

/// `AS4_PATH` has no segments of confederations; those that somebody sends are left out (RFC 6793 §6).
pub(super) fn without_confederations(path: &AsPath) -> AsPath {
    AsPath(path.0.iter().filter(|segment| !is_confederation(segment)).cloned().collect())
}

const fn is_confederation(segment: &Segment) -> bool {
    match segment {
        Segment::ConfederationSequence(_) | Segment::ConfederationSet(_) => true,
        Segment::Sequence(_) | Segment::Set(_) => false,
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

/// How long a segment makes a path: a set counts once, one of a confederation not at all (RFC 4271 §9.1.2.2, RFC 5065 §5.3).
const fn length(segment: &Segment) -> usize {
    match segment {
        Segment::Sequence(numbers) => numbers.len(),
        Segment::Set(_) => 1,
        Segment::ConfederationSequence(_) | Segment::ConfederationSet(_) => 0,
    }
}

/// The path of an `AS_PATH` of two octets and an `AS4_PATH`: the latter, with what the former has more in front of it
/// (RFC 6793 §4.2.3).
pub(super) fn merge(two: AsPath, mut four: AsPath) -> AsPath {
    let total = |path: &AsPath| path.0.iter().map(length).sum::<usize>();
    let Some(mut missing) = total(&two).checked_sub(total(&four)) else { return two };
    let mut merged = Vec::new();
    for segment in two.0 {
        let length = length(&segment);
        match segment {
            // Those in front, and those beside something that is taken over.
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

/// Puts AS numbers in front of a path: into its first sequence where they fit.
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
