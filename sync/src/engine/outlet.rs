//! Source side of the channels to the engine.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use crate::{
    control::Control,
    wanted::{DesiredObjects, ObservedObjects},
};

/// Channel ends and shared state of the source.
pub struct Outlet {
    /// Desired objects of the source.
    pub wanted: watch::Sender<DesiredObjects>,
    /// Server state of these objects.
    pub observed: watch::Receiver<ObservedObjects>,
    /// Errors and status of the source.
    pub progress: Arc<Progress>,
    /// Connection to Tidegate, for reading objects of other owners.
    pub control: Arc<Control>,
    /// Stop signal.
    pub stop: CancellationToken,
}
