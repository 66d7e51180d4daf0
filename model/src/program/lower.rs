//! What becomes of packet programs in modes that cannot do all of it: a program again, so that the oracle can be asked.
//!
//! What is intended is the program; what a node's kernel should do is the program lowered for its mode.

pub mod ipvs;
pub mod userspace;

use super::Program;
use crate::kinds::node::ProxyMode;

/// The program that a node of a mode carries out.
///
/// # Errors
/// What the mode cannot do, in words; then nothing of the Service is programmed there. What only the node finds out is
/// not known here.
pub fn lower(program: &Program, mode: ProxyMode) -> Result<Program, String> {
    match mode {
        ProxyMode::Nftables | ProxyMode::Iptables => Ok(program.clone()),
        ProxyMode::Ipvs => ipvs::lower(program),
        ProxyMode::Userspace => Ok(userspace::expect(program)),
    }
}
