//! Options of sockets for which the libraries at hand have no safe form: the one place that sets such.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use nix::{errno::Errno, libc};

/// Sets an option to the bytes of a value, which has to be of the type that the kernel expects: plain data, or a structure
/// that points to what its caller keeps until this returns.
#[allow(unsafe_code, reason = "no library at hand has these options")]
pub(crate) fn set<T>(
    descriptor: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the pointer and the length are those of a whole `T`, which outlives the call. A `sock_fprog` points to the
    // instructions of its caller, who keeps them until the call has returned; the kernel copies them.
    let answer = unsafe {
        libc::setsockopt(descriptor.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    Ok(Errno::result(answer).map(|_| ())?)
}
