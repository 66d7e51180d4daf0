//! Writers for fields that are preceded by their length.

use super::EncodeError;

/// Writes a field of at most 255 bytes, preceded by its length in one byte.
pub(super) fn counted_by_u8(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), EncodeError> {
    let at = out.len();
    out.push(0);
    write(out);
    let bytes = out.len() - at - 1;
    out[at] = u8::try_from(bytes).map_err(|_| EncodeError::TooLong { bytes, bytes_max: u8::MAX.into() })?;
    Ok(())
}

/// Writes a field of at most 65,535 bytes, preceded by its length in two bytes.
pub(super) fn counted_by_u16(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), EncodeError> {
    let at = out.len();
    out.extend([0; 2]);
    write(out);
    let bytes = out.len() - at - 2;
    let length =
        u16::try_from(bytes).map_err(|_| EncodeError::TooLong { bytes, bytes_max: u16::MAX.into() })?;
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
