//! Services that come and go, each with an address and endpoints that it always has.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use lab::{host::wait, load::keep_alive::KeepAlive};

use super::{LIVE, ask, milliseconds};
use crate::fixture_cluster::{CLIENT, Estate};

/// The addresses of the live Services: each comes back with its own.
#[derive(Debug)]
pub(super) struct Comings {
    frontends: Vec<SocketAddr>,
}

impl Comings {
    /// Asks what addresses the live Services have.
    ///
    /// # Errors
    /// One has none.
    pub(super) fn begin(estate: &Estate) -> Result<Self> {
        let frontends = (0..LIVE).map(|number| estate.live_frontend(number));
        Ok(Self { frontends: frontends.collect::<Result<_>>()? })
    }

    /// A live Service goes, and comes again while it is asked: the milliseconds from the write to its first answer.
    ///
    /// # Errors
    /// It is refused, or never answers.
    pub(super) fn latency(&self, estate: &Estate, client: &KeepAlive, number: u32) -> Result<f64> {
        let frontend = self.frontend(number)?;
        client.delete(&Estate::live_service_path(number))?;
        let place = estate.cluster.place(CLIENT)?;
        wait::until_true("the Service that has gone to be silent", || ask::is_refused(place, frontend))?;
        let asking = ask::until_answered(place, frontend)?;
        let timed = client.create(Estate::SERVICES, &Estate::live_service(number, frontend.ip()))?;
        let answered = asking.answered()?;
        let taken: Duration = answered.saturating_duration_since(timed.begun);
        Ok(milliseconds(taken))
    }

    /// With an even number a live Service goes, with the next one it comes again.
    ///
    /// # Errors
    /// It is refused.
    pub(super) fn come_or_go(&self, client: &KeepAlive, change: u32) -> Result<()> {
        let number = (change / 2) % LIVE;
        let _when = if change.is_multiple_of(2) {
            client.delete(&Estate::live_service_path(number))?
        } else {
            let service = Estate::live_service(number, self.frontend(number)?.ip());
            client.create(Estate::SERVICES, &service)?
        };
        Ok(())
    }

    fn frontend(&self, number: u32) -> Result<SocketAddr> {
        let index = usize::try_from(number).context("a small number")?;
        self.frontends.get(index).copied().with_context(|| format!("there is no live Service {number}"))
    }
}
