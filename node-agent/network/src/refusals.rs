//! Attachments that the control server does not record. Their interfaces work, but their Workloads do not have the addresses.

use std::{collections::BTreeMap, sync::Arc};

use attach_socket::{AttachedWorkload, AttachmentKey, RecordRefusal};

/// Refused attachments by their identities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordRefusals {
    refused: Arc<BTreeMap<AttachmentKey, (u64, RecordRefusal)>>,
}

impl RecordRefusals {
    /// Creates the refusals of attachments, given by their identities and numbers.
    #[must_use]
    pub fn new(refused: impl IntoIterator<Item = (AttachmentKey, u64, RecordRefusal)>) -> Self {
        let refused = refused.into_iter().map(|(key, generation, refusal)| (key, (generation, refusal)));
        Self { refused: Arc::new(refused.collect()) }
    }

    /// Returns the refusal of an attachment, or `None` if none is known. A later attachment of the same identity has none.
    #[must_use]
    pub fn of(&self, attached: &AttachedWorkload) -> Option<&RecordRefusal> {
        let (generation, refusal) = self.refused.get(&attached.key)?;
        (*generation == attached.generation).then_some(refusal)
    }

    /// Sets the refusal of an attachment that is shown to a user.
    #[must_use]
    pub fn marked(&self, attached: AttachedWorkload) -> AttachedWorkload {
        AttachedWorkload { refusal: self.of(&attached).cloned(), ..attached }
    }

    /// Returns the number of refused attachments and the first one with its reason, or `None` if there is none.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let (key, (_, RecordRefusal { reason, message })) = self.refused.first_key_value()?;
        let count = self.refused.len();
        let noun = if count == 1 { "attachment" } else { "attachments" };
        Some(format!("the control server does not record {count} {noun}; first {key}: {reason}, {message}"))
    }
}
