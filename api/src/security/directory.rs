//! Tokens and roles, parsed from the vault and cached until the vault changes.

use std::{collections::BTreeMap, sync::Arc};

use model::primitives::{name::Label, quantity::Timestamp};
use store::VaultRecord;

use super::{
    access::{Access, Grant},
    roles::{self, Role},
    tokens::{self, Binding, TokenRecord},
};

/// Tokens and roles, parsed from one version of the vault.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    tokens: BTreeMap<String, (u64, Arc<TokenRecord>)>,
    roles: BTreeMap<Label, (u64, Arc<Role>)>,
}

impl Directory {
    /// Parses tokens and roles from vault records. An unreadable record grants no permission.
    pub(crate) fn read(records: &BTreeMap<String, VaultRecord>) -> Self {
        let mut directory = Self::default();
        for (key, VaultRecord { version, body }) in records {
            if let Some(id) = key.strip_prefix(tokens::VAULT_PREFIX) {
                match serde_json::from_slice::<TokenRecord>(body) {
                    Ok(token) => {
                        directory.tokens.insert(id.to_owned(), (*version, Arc::new(token)));
                    }
                    Err(_) => tracing::error!(id, "cannot read a token; it is invalid"),
                }
            } else if let Some(name) = key.strip_prefix(roles::VAULT_PREFIX) {
                let body = serde_json::from_slice(body).ok();
                match (Label::parse(name), body.and_then(|body| Role::new(body).ok())) {
                    (Ok(name), Some(role)) => {
                        directory.roles.insert(name, (*version, Arc::new(role)));
                    }
                    (Ok(_) | Err(_), _) => {
                        tracing::error!(name, "cannot read a role; it grants nothing");
                    }
                }
            }
        }
        directory
    }

    /// Returns all tokens, each with its id and the version of its vault record.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&String, u64, &Arc<TokenRecord>)> {
        self.tokens.iter().map(|(id, (version, token))| (id, *version, token))
    }

    /// Returns the token with this id, and the version of its vault record.
    pub(crate) fn token(&self, id: &str) -> Option<(u64, &Arc<TokenRecord>)> {
        self.tokens.get(id).map(|(version, token)| (*version, token))
    }

    /// Returns the built-in or user-defined role with this name.
    pub(crate) fn role(&self, name: &Label) -> Option<&Arc<Role>> {
        roles::built_in().get(name).or_else(|| self.roles.get(name).map(|(_, role)| role))
    }

    /// Returns the user-defined roles, each with the version of its vault record.
    pub(crate) fn written_roles(&self) -> &BTreeMap<Label, (u64, Arc<Role>)> {
        &self.roles
    }

    /// Returns the role of a binding with the binding's restrictions, or `None` if the role does not exist.
    pub(crate) fn grant(&self, binding: &Binding) -> Option<Grant> {
        Some(Grant { role: Arc::clone(self.role(&binding.role)?), binding: binding.clone() })
    }

    /// Returns the permissions of the token with this id, or `None` if it is not valid.
    pub(crate) fn access(&self, id: &str, now: Timestamp) -> Option<Access> {
        let (_, token) = self.token(id)?;
        let grants = || token.bindings.iter().filter_map(|binding| self.grant(binding)).collect();
        token.is_valid(now).then(|| Access::of_token(id.to_owned(), token.name.as_str().to_owned(), grants()))
    }

    /// Returns true if a valid token has all permissions.
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
