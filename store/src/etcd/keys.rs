//! Layout of the etcd keys of a store, all below one prefix.
//!
//! A commit group consists of the commits that are written in one etcd transaction; LAST is the revision of
//! its last commit. Folding moves changes from the log to the objects. MAKER is `client` or `server`, the
//! author of a write. SPACE is `log`, `objects` or a part of the history.
//!
//! ```text
//! format                        version of this layout
//! head                          position (epoch and revision); each commit compares and rewrites it
//! log/LAST                      commits of one group
//! history/MAKER/heads/LAST      history of the group: author of each write and keys of its objects
//! history/MAKER/bodies/LAST     history of the group: objects before and after each write
//! history/floor                 newest client write that was deleted from the history
//! objects/KEY                   object at the revision in `base`, or newer
//! base                          revision up to which the log has been folded into `objects`
//! stage/SPACE/…/NUMBER          pieces of values that are too large for one request
//! vault/KEY                     vault record: keys, tokens, roles
//! leader                        id of the leading process, bound to a lease
//! ```

use model::primitives::quantity::Revision;

/// Maximum accepted revision: a thousand commits per second would take millions of years to reach it.
pub(super) const REVISION_MAX: Revision = Revision(u64::MAX >> 1);

/// Names of the etcd keys of one store.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// Prefix of all keys, with a trailing slash.
    prefix: String,
}

/// Key space with one value per commit group; the key ends with the revision of the group's last commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// Groups of the change log.
    Log,
    /// Heads of history entries (author and keys), one value for each group.
    Heads {
        /// True for server writes, false for client writes.
        is_by_server: bool,
    },
    /// Bodies of history entries (objects before and after), one value for each group.
    Bodies {
        /// True for server writes, false for client writes.
        is_by_server: bool,
    },
}

impl Space {
    /// All key spaces with values of commit groups.
    pub(super) const ALL: [Self; 5] = [
        Self::Log,
        Self::Heads { is_by_server: false },
        Self::Bodies { is_by_server: false },
        Self::Heads { is_by_server: true },
        Self::Bodies { is_by_server: true },
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Heads { is_by_server: false } => "history/client/heads",
            Self::Heads { is_by_server: true } => "history/server/heads",
            Self::Bodies { is_by_server: false } => "history/client/bodies",
            Self::Bodies { is_by_server: true } => "history/server/bodies",
        }
    }
}

impl Keys {
    /// Creates the key names below a prefix with a trailing slash.
    pub(super) fn new(prefix: &str) -> Self {
        debug_assert!(prefix.ends_with('/'), "validated with the options");
        Self { prefix: prefix.to_owned() }
    }

    /// Returns the prefix of all keys of the store.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn format(&self) -> String {
        format!("{}format", self.prefix)
    }

    pub(super) fn head(&self) -> String {
        format!("{}head", self.prefix)
    }

    pub(super) fn base(&self) -> String {
        format!("{}base", self.prefix)
    }

    pub(super) fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    pub(super) fn history_floor(&self) -> String {
        format!("{}history/floor", self.prefix)
    }

    /// Returns the prefix of the keys of vault records.
    pub(super) fn vault(&self) -> String {
        format!("{}vault/", self.prefix)
    }

    /// Returns the prefix of the keys of objects.
    pub(super) fn objects(&self) -> String {
        format!("{}objects/", self.prefix)
    }

    /// Returns the key of a commit group's value in a key space; `last` is the revision of the group's last
    /// commit.
    pub(super) fn group(&self, space: Space, last: Revision) -> String {
        // Twenty digits hold every revision, so that keys sort by revision.
        format!("{}{}/{:020}", self.prefix, space.name(), last.0)
    }

    /// Returns the exclusive end of the range of etcd keys in a key space.
    pub(super) fn group_end(&self, space: Space) -> String {
        // The character after the slash.
        format!("{}{}0", self.prefix, space.name())
    }

    /// Parses an etcd key created by [`Self::group`] for the same key space. Returns the revision in it,
    /// which is that of the last commit in the group, or `None` if the key is malformed.
    pub(super) fn last_of(&self, space: Space, key: &[u8]) -> Option<Revision> {
        let digits = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(space.name().as_bytes())?;
        let digits = std::str::from_utf8(digits.strip_prefix(b"/")?).ok()?;
        digits.parse().ok().map(Revision).filter(|last| *last <= REVISION_MAX)
    }

    /// Returns the key prefix of the pieces of large values in a space.
    pub(super) fn staged_groups(&self, space: Space) -> String {
        format!("{}stage/{}/", self.prefix, space.name())
    }

    /// Returns the key prefix of the pieces of large values, in a key space and for groups whose last commit
    /// has revision `last`. The pieces of all writers are below the prefix.
    pub(super) fn staged_at(&self, space: Space, last: Revision) -> String {
        format!("{}{:020}/", self.staged_groups(space), last.0)
    }

    /// Returns the prefix of the keys under which the writer `id` stores the pieces of a group's value.
    pub(super) fn staged_group(&self, space: Space, last: Revision, id: &str) -> String {
        format!("{}{id}/", self.staged_at(space, last))
    }

    /// Parses the key of a piece of a large value. Returns the revision of the group's last commit and the id
    /// of the writer.
    pub(super) fn staged_by(&self, space: Space, key: &[u8]) -> Option<(Revision, String)> {
        let rest = key.strip_prefix(self.staged_groups(space).as_bytes())?;
        let mut parts = std::str::from_utf8(rest).ok()?.split('/');
        let (last, id) = (parts.next()?.parse().ok()?, parts.next()?);
        Some((Revision(last), id.to_owned()))
    }

    /// Returns the key prefix of the pieces of the object `key` in all of its states. Object keys have three
    /// parts, so that no key is a prefix of another one.
    pub(super) fn staged_objects(&self, key: &str) -> String {
        format!("{}stage/objects/{key}/", self.prefix)
    }

    /// Returns the key prefix of the pieces of an object in its state at one revision.
    pub(super) fn staged_object(&self, key: &str, revision: Revision) -> String {
        format!("{}{:020}/", self.staged_objects(key), revision.0)
    }
}

/// Returns the key of one piece of a value that is too large for one etcd request. `stage` is the key prefix of
/// the pieces of the value, `number` the index of the piece.
pub(super) fn piece(stage: &str, number: usize) -> String {
    format!("{stage}{number:05}")
}

/// Returns the exclusive end of the range of keys that begin with `prefix`, which must end with a slash.
pub(super) fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    if end.pop() == Some('/') {
        end.push('0');
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_revisions_and_are_read_back() {
        let keys = Keys::new("/tidegate/");
        for space in Space::ALL {
            let [nine, ten, last] = [9, 10, u64::MAX].map(|revision| keys.group(space, Revision(revision)));
            assert!(nine < ten && ten < last && last < keys.group_end(space), "{space:?}");
            assert_eq!(keys.last_of(space, ten.as_bytes()), Some(Revision(10)));
            let staged = piece(&keys.staged_group(space, Revision(7), "id"), 3);
            assert_eq!(keys.staged_by(space, staged.as_bytes()), Some((Revision(7), "id".to_owned())));
            assert!(staged < end_of(&keys.staged_groups(space)));
        }
        assert_eq!(keys.last_of(Space::Log, b"/tidegate/log/x"), None);
        assert_eq!(keys.last_of(Space::Log, b"/other/log/1"), None);
        assert_eq!(end_of("/a/"), "/a0");
    }
}
