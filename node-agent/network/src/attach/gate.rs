//! Step before the interface of a workload exists, for programs that filter its packets.

use std::{fmt, sync::Arc};

use attach_socket::AttachedWorkload;

/// Function that is called with each new attachment before its interface exists, and returns when the packets of the workload
/// are filtered, or after a limited time. The attachments of the node wait meanwhile.
#[derive(Clone, Default)]
pub struct AttachGate(Option<Arc<WaitFn>>);

/// Function that returns when an attachment may get its interface.
type WaitFn = dyn Fn(&AttachedWorkload) + Send + Sync;

impl AttachGate {
    /// Creates a gate that calls this function.
    pub fn new(wait: impl Fn(&AttachedWorkload) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(wait)))
    }

    /// Calls the function, if there is one.
    pub(super) fn pass(&self, attached: &AttachedWorkload) {
        if let Some(wait) = &self.0 {
            wait(attached);
        }
    }
}

impl fmt::Debug for AttachGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AttachGate").field(&self.0.is_some()).finish()
    }
}
