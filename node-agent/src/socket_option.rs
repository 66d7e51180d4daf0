//! Socket options without a safe wrapper in our dependencies. The only module that calls `setsockopt`
//! directly.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use nix::{errno::Errno, libc};

/// Sets a socket option to the bytes of a value. The value must have the type that the kernel expects: plain
/// data, or a structure that points to data which the caller keeps alive during the call.
#[allow(unsafe_code, reason = "no library at hand has these options")]
pub(crate) fn set<T>(
    descriptor: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: pointer and length describe a whole `T` that outlives the call. A `sock_fprog` points to
    // instructions that its caller keeps alive until the call has returned; the kernel copies them.
    let answer = unsafe {
        libc::setsockopt(descriptor.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    Ok(Errno::result(answer).map(|_| ())?)
}
