//! Liveness of another node, derived from the state of the BFD session with it. Does no I/O.

use std::time::Duration;

use super::{io_traits::Session, machine::Liveness};

/// Time during which a node that has announced its restart counts as alive.
pub const RESTART_TIME: Duration = Duration::from_secs(10);

/// Returns the liveness of a node, derived from the state of its BFD session and its previous liveness.
#[must_use]
pub fn follow(before: Liveness, session: Session) -> Liveness {
    match (session, before) {
        (Session::Up, _) => Liveness::Up,
        (Session::HandedOver, _) => Liveness::HandedOver,
        (Session::Restarting { since }, _) => Liveness::Restarting { until: since + RESTART_TIME },
        // Only a node that was up can be declared down; a node that left may take its time to return.
        (Session::Down, Liveness::Up | Liveness::Down) => Liveness::Down,
        (Session::Down, Liveness::Unknown { .. } | Liveness::HandedOver | Liveness::Restarting { .. }) => {
            before
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn silence_of_who_was_never_heard_says_nothing_and_a_farewell_is_remembered() {
        let since = Instant::now();
        let unknown = Liveness::Unknown { until: since };
        assert_eq!(follow(unknown, Session::Down), unknown);
        assert_eq!(follow(Liveness::Up, Session::Down), Liveness::Down);
        assert_eq!(follow(Liveness::Down, Session::Down), Liveness::Down);
        let restarting = follow(Liveness::Up, Session::Restarting { since });
        assert_eq!(restarting, Liveness::Restarting { until: since + RESTART_TIME });
        assert_eq!(follow(restarting, Session::Down), restarting);
        assert_eq!(follow(Liveness::HandedOver, Session::Down), Liveness::HandedOver);
        assert_eq!(follow(Liveness::HandedOver, Session::Up), Liveness::Up);
    }
}
