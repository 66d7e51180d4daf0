//! Lowering of packet programs for proxy modes that cannot implement all of them. The result is a program as
//! well, so that the oracle applies to it.
//!
//! The program before lowering defines the intended behavior; the lowered program defines the behavior that
//! the kernel of a node must have.

pub mod ipvs;
pub mod userspace;

use super::Program;
use crate::kinds::node::ProxyMode;

/// Returns the program that a node in `mode` implements.
///
/// # Errors
/// A message that describes the unsupported setting; the Service is not programmed on such a node. Limits that only
/// the node detects are not included.
pub fn lower(program: &Program, mode: ProxyMode) -> Result<Program, String> {
    match mode {
        ProxyMode::Nftables | ProxyMode::Iptables => Ok(program.clone()),
        ProxyMode::Ipvs => ipvs::lower(program),
        ProxyMode::Userspace => Ok(userspace::expect(program)),
    }
}
