//! Values of the State and Diagnostic fields (RFC 5880 §4.1).

use std::fmt;

/// Session state (RFC 5880 §4.1, field Sta).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// AdminDown: disabled by the operator. The peer must not treat this state as a path failure (RFC 5882
    /// §3.2).
    AdminDown,
    /// Down: no packets are received, or the peer receives none.
    Down,
    /// Init: packets are received, but the peer has not yet confirmed that it receives packets of this
    /// system.
    Init,
    /// Up: both systems receive packets.
    Up,
}

impl State {
    /// Decodes the two-bit State field; higher bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    /// Returns the two-bit State field.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdminDown => "AdminDown",
            Self::Down => "Down",
            Self::Init => "Init",
            Self::Up => "Up",
        })
    }
}

/// Diagnostic code: the reason for the last state change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Diagnostic {
    /// 0: No Diagnostic, for example after a restart.
    None,
    /// 1: Control Detection Time Expired: no packet arrived within the detection time.
    ControlDetectionTimeExpired,
    /// 2: Echo Function Failed. Never sent, because the Echo function is not supported.
    EchoFunctionFailed,
    /// 3: Neighbor Signaled Session Down: the peer sent state Down.
    NeighborSignaledSessionDown,
    /// 4: Forwarding Plane Reset: the sender's forwarding plane was reset locally.
    ForwardingPlaneReset,
    /// 5: Path Down, as detected by means other than BFD.
    PathDown,
    /// 6: Concatenated Path Down: a path behind the sender has failed.
    ConcatenatedPathDown,
    /// 7: Administratively Down: the operator or a program has disabled the session.
    AdministrativelyDown,
    /// 8: Reverse Concatenated Path Down: a path behind the sender has failed in the reverse direction.
    ReverseConcatenatedPathDown,
    /// 9: Mis-connectivity defect: packets of a different session arrive (RFC 6428).
    MisConnectivityDefect,
    /// 10 to 31: codes without an assigned meaning.
    Unassigned(UnassignedDiagnostic),
}

/// Diagnostic code without an assigned meaning, 10 to 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnassignedDiagnostic(u8);

impl Diagnostic {
    /// Decodes the five-bit Diagnostic field; higher bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 31 {
            0 => Self::None,
            1 => Self::ControlDetectionTimeExpired,
            2 => Self::EchoFunctionFailed,
            3 => Self::NeighborSignaledSessionDown,
            4 => Self::ForwardingPlaneReset,
            5 => Self::PathDown,
            6 => Self::ConcatenatedPathDown,
            7 => Self::AdministrativelyDown,
            8 => Self::ReverseConcatenatedPathDown,
            9 => Self::MisConnectivityDefect,
            other => Self::Unassigned(UnassignedDiagnostic(other)),
        }
    }

    /// Returns the five-bit Diagnostic field.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::ControlDetectionTimeExpired => 1,
            Self::EchoFunctionFailed => 2,
            Self::NeighborSignaledSessionDown => 3,
            Self::ForwardingPlaneReset => 4,
            Self::PathDown => 5,
            Self::ConcatenatedPathDown => 6,
            Self::AdministrativelyDown => 7,
            Self::ReverseConcatenatedPathDown => 8,
            Self::MisConnectivityDefect => 9,
            Self::Unassigned(UnassignedDiagnostic(bits)) => bits,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no diagnostic"),
            Self::ControlDetectionTimeExpired => f.write_str("control detection time expired"),
            Self::EchoFunctionFailed => f.write_str("echo function failed"),
            Self::NeighborSignaledSessionDown => f.write_str("neighbor signaled session down"),
            Self::ForwardingPlaneReset => f.write_str("forwarding plane reset"),
            Self::PathDown => f.write_str("path down"),
            Self::ConcatenatedPathDown => f.write_str("concatenated path down"),
            Self::AdministrativelyDown => f.write_str("administratively down"),
            Self::ReverseConcatenatedPathDown => f.write_str("reverse concatenated path down"),
            Self::MisConnectivityDefect => f.write_str("mis-connectivity defect"),
            Self::Unassigned(UnassignedDiagnostic(bits)) => write!(f, "diagnostic {bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_the_fields_has_one_meaning() {
        for bits in 0..4 {
            assert_eq!(State::from_bits(bits).bits(), bits);
        }
        for bits in 0..32 {
            assert_eq!(Diagnostic::from_bits(bits).bits(), bits);
        }
        assert_eq!(Diagnostic::from_bits(0xe7), Diagnostic::AdministrativelyDown);
    }
}
