//! The tokens and roles of the vault, read once for all requests until it changes.

use std::{collections::BTreeMap, sync::Arc};

use model::primitives::{name::Label, quantity::Timestamp};
use store::VaultRecord;

use super::{
    access::{Access, Grant},
    roles::{self, Role},
    tokens::{self, Binding, Token},
};

/// Tokens and roles.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    tokens: BTreeMap<String, (u64, Arc<Token>)>,
    roles: BTreeMap<Label, (u64, Arc<Role>)>,
}

impl Directory {
    /// Reads the vault. What cannot be read allows nothing.
    pub(crate) fn read(records: &BTreeMap<String, VaultRecord>) -> Self {
        let mut directory = Self::default();
        for (key, VaultRecord { version, body }) in records {
            if let Some(id) = key.strip_prefix(tokens::VAULT_PREFIX) {
                match serde_json::from_slice::<Token>(body) {
                    Ok(token) => {
                        directory.tokens.insert(id.to_owned(), (*version, Arc::new(token)));
                    }
                    Err(_) => tracing::error!(id, "a token cannot be read; it counts for nothing"),
                }
            } else if let Some(name) = key.strip_prefix(roles::VAULT_PREFIX) {
                let body = serde_json::from_slice(body).ok();
                match (Label::parse(name), body.and_then(|body| Role::new(body).ok())) {
                    (Ok(name), Some(role)) => {
                        directory.roles.insert(name, (*version, Arc::new(role)));
                    }
                    (Ok(_) | Err(_), _) => {
                        tracing::error!(name, "a role cannot be read; it allows nothing");
                    }
                }
            }
        }
        directory
    }

    /// Every token with its id and the version of its record.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&String, u64, &Arc<Token>)> {
        self.tokens.iter().map(|(id, (version, token))| (id, *version, token))
    }

    /// One token, with the version of its record.
    pub(crate) fn token(&self, id: &str) -> Option<(u64, &Arc<Token>)> {
        self.tokens.get(id).map(|(version, token)| (*version, token))
    }

    /// A role, built-in or written.
    pub(crate) fn role(&self, name: &Label) -> Option<&Arc<Role>> {
        roles::built_in().get(name).or_else(|| self.roles.get(name).map(|(_, role)| role))
    }

    /// The roles that somebody wrote, with the versions of their records.
    pub(crate) fn written_roles(&self) -> &BTreeMap<Label, (u64, Arc<Role>)> {
        &self.roles
    }

    /// A binding with its role; nothing when there is no such role.
    pub(crate) fn grant(&self, binding: &Binding) -> Option<Grant> {
        Some(Grant { role: Arc::clone(self.role(&binding.role)?), binding: binding.clone() })
    }

    /// What the holder of a token may do, while it counts.
    pub(crate) fn access(&self, id: &str, now: Timestamp) -> Option<Access> {
        let (_, token) = self.token(id)?;
        let grants = || token.bindings.iter().filter_map(|binding| self.grant(binding)).collect();
        token.is_valid(now).then(|| Access::of_token(id.to_owned(), token.name.as_str().to_owned(), grants()))
    }

    /// Whether there is a token that may do everything.
    pub(crate) fn has_admin(&self, now: Timestamp) -> bool {
        let is_admin = |binding: &Binding| {
            let Binding { role, namespaces, pools, endpoint_ranges } = binding;
            role.as_str() == roles::ADMIN
                && namespaces.is_none()
                && pools.is_none()
                && endpoint_ranges.is_none()
        };
        self.tokens.values().any(|(_, token)| token.is_valid(now) && token.bindings.iter().any(is_admin))
    }
}
