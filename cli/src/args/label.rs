//! Arguments of `label` and `annotate`.

use clap::Args;
use model::primitives::name::Namespace;

use super::history::Because;
use crate::resource::Target;

/// Arguments of `label` and `annotate`.
#[derive(Debug, Args)]
pub struct Label {
    /// Kind as accepted by `get`, or KIND/NAME
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Names of objects, then KEY=VALUE to set an entry or KEY- to remove it
    #[arg(value_name = "NAME|KEY=VALUE|KEY-", required = true)]
    pub words: Vec<String>,
    /// Namespace of the objects
    #[arg(short, long, default_value = "default", value_parser = Namespace::parse)]
    pub namespace: Namespace,
    /// Replace existing values
    #[arg(long)]
    pub overwrite: bool,
    /// Preview the result without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Reason for the change, and permission for large removals.
    #[command(flatten)]
    pub because: Because,
}

/// Change of one label or annotation: its key, and the new value, or `None` to remove it.
pub type EntryChange = (String, Option<String>);

impl Label {
    /// Returns the names of the objects and the changes.
    ///
    /// # Errors
    /// Returns a usage message if no name or no change is given.
    pub fn names_and_changes(&self) -> Result<(Vec<&str>, Vec<EntryChange>), String> {
        let mut names: Vec<&str> = self.target.name.as_deref().into_iter().collect();
        let mut changes: Vec<EntryChange> = Vec::new();
        for word in &self.words {
            match (word.split_once('='), word.strip_suffix('-')) {
                (Some((key, value)), _) if !key.is_empty() => {
                    changes.push((key.to_owned(), Some(value.to_owned())))
                }
                (None, Some(key)) if !key.is_empty() => changes.push((key.to_owned(), None)),
                (Some(_), _) | (None, Some(_)) => {
                    return Err(format!("`{word}` is neither KEY=VALUE nor KEY-"));
                }
                (None, None) => names.push(word),
            }
        }
        match (names.is_empty(), changes.is_empty()) {
            (true, _) => Err("the name of the object is missing".to_owned()),
            (false, true) => {
                Err("the change is missing: write KEY=VALUE, or KEY- to remove an entry".to_owned())
            }
            (false, false) => Ok((names, changes)),
        }
    }
}
