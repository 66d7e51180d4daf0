//! Source's ends of the channels to the engine, the part of the adapter that writes to the server. The source
//! sends desired objects and receives observed ones.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use crate::{
    control::Control,
    wanted::{DesiredObjects, ObservedObjects},
};

/// Source's end of the channels to the engine, with the state that both share.
pub struct Outlet {
    /// Sender of the desired objects.
    pub wanted: watch::Sender<DesiredObjects>,
    /// Newest state of the source's objects on the server.
    pub observed: watch::Receiver<ObservedObjects>,
    /// Errors and status of the source.
    pub progress: Arc<Progress>,
    /// Connection to Tidegate, for reading objects of other owners.
    pub control: Arc<Control>,
    /// Signal on which the source stops.
    pub stop: CancellationToken,
}
