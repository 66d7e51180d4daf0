//! Creation and deletion of Services with fixed addresses and endpoints.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use lab::{host::wait, load::keep_alive::KeepAlive};

use super::{LIVE, ask, milliseconds};
use crate::fixture_cluster::{CLIENT, Estate};

/// Addresses of the live Services (those with a backend), reused at each creation.
#[derive(Debug)]
pub(super) struct Comings {
    frontends: Vec<SocketAddr>,
}

impl Comings {
    /// Reads the addresses of the live Services.
    ///
    /// # Errors
    /// Returns an error if a Service has no address.
    pub(super) fn begin(estate: &Estate) -> Result<Self> {
        let frontends = (0..LIVE).map(|number| estate.live_frontend(number));
        Ok(Self { frontends: frontends.collect::<Result<_>>()? })
    }

    /// Deletes a live Service and creates it again. Returns the time in milliseconds from the creating
    /// request to the first reply of the Service.
    ///
    /// # Errors
    /// Returns an error if a write is rejected or there is no reply.
    pub(super) fn latency(&self, estate: &Estate, client: &KeepAlive, number: u32) -> Result<f64> {
        let frontend = self.frontend(number)?;
        client.delete(&Estate::live_service_path(number))?;
        let place = estate.cluster.place(CLIENT)?;
        wait::until_true("the deleted Service to be silent", || ask::is_refused(place, frontend))?;
        let asking = ask::until_answered(place, frontend)?;
        let timed = client.create(Estate::SERVICES, &Estate::live_service(number, frontend.ip()))?;
        let answered = asking.answered()?;
        let taken: Duration = answered.saturating_duration_since(timed.begun);
        Ok(milliseconds(taken))
    }

    /// Deletes a live Service if `change` is even, and creates it again otherwise.
    ///
    /// # Errors
    /// Returns an error if the write is rejected.
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
