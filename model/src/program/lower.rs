//! Lowering of packet programs: changes a program to the behavior that a proxy mode can implement. The result
//! is a program too, so the oracle (the interpreter of programs for tests) can evaluate it.
//!
//! The program before lowering defines the intended behavior. The lowered program defines the behavior that the
//! kernel of a node must have.

pub mod ipvs;
pub mod userspace;

use super::Program;
use crate::kinds::node::ProxyMode;

/// Returns a copy of `program` changed to the behavior that a node with proxy mode `mode` can implement.
///
/// # Errors
/// Returns a message that describes the unsupported setting; the Service is not programmed on such a node.
/// Limits that only the node can detect are not checked.
pub fn lower(program: &Program, mode: ProxyMode) -> Result<Program, String> {
    match mode {
        ProxyMode::Nftables | ProxyMode::Iptables => Ok(program.clone()),
        ProxyMode::Ipvs => ipvs::lower(program),
        ProxyMode::Userspace => Ok(userspace::expect(program)),
    }
}
