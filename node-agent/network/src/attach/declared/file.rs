//! File with the declared interfaces: their addresses, and the former settings of changed links. Written as a whole, before
//! the kernel is changed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use model::kinds::attachment::WorkloadKey;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{Claim, LinkRecord};

/// Name of the file in the state directory.
const FILE: &str = "interfaces.json";
/// Version of the format.
const FORMAT: u32 = 1;

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeclaredFile {
    format: u32,
    node: String,
    boot: String,
    /// Addresses of the Workloads that declare an interface.
    pub claims: BTreeMap<WorkloadKey, Claim>,
    /// Former settings of changed links by their names.
    pub links: BTreeMap<String, LinkRecord>,
}

impl DeclaredFile {
    /// Reads the file of a state directory. `boot` identifies the running boot of the machine: after a restart of the machine,
    /// links have their former settings. A file that cannot be read, or is one of another node, counts as empty.
    ///
    /// # Errors
    /// Returns an error if an existing file cannot be opened.
    pub fn open(dir: &Path, node: &str, boot: &str) -> io::Result<Self> {
        let empty = Self { format: FORMAT, node: node.to_owned(), boot: boot.to_owned(), ..Self::default() };
        let text = match fs::read(dir.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(empty),
            Err(error) => return Err(error),
        };
        match serde_json::from_slice::<Self>(&text) {
            Ok(found) if found.format == FORMAT && found.node == node => {
                let links = if found.boot == boot { found.links } else { BTreeMap::new() };
                Ok(Self { claims: found.claims, links, ..empty })
            }
            Ok(_) => {
                warn!("the file of declared interfaces is one of another node or version; ignored it");
                Ok(empty)
            }
            Err(error) => {
                warn!(%error, "the file of declared interfaces cannot be parsed; ignored it");
                Ok(empty)
            }
        }
    }

    /// Writes the file into a state directory, and syncs it to the disk. Without content, the file is removed.
    ///
    /// # Errors
    /// Returns the error of the disk. The former file is then still there.
    pub fn save(&self, dir: &Path) -> io::Result<()> {
        if self.claims.is_empty() && self.links.is_empty() {
            return remove(dir).map(|_| ());
        }
        let (path, new) = (dir.join(FILE), dir.join(format!("{FILE}.new")));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()
    }
}

/// Removes the file of a state directory. Returns true if it existed.
///
/// # Errors
/// Returns an error if the file cannot be removed.
pub fn remove(dir: &Path) -> io::Result<bool> {
    match fs::remove_file(dir.join(FILE)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the links of the file of a state directory, if the machine was not restarted since.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn links(dir: &Path, boot: &str) -> io::Result<BTreeMap<String, LinkRecord>> {
    match fs::read(dir.join(FILE)) {
        Ok(text) => {
            let found: DeclaredFile = serde_json::from_slice(&text)?;
            Ok(if found.boot == boot { found.links } else { BTreeMap::new() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: a file with a claim and a changed link. Output: both after a restart of the agent; the claim alone after a restart
    /// of the machine; none for another node.
    #[test]
    fn claims_outlast_the_machine_and_links_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let key = WorkloadKey::try_from("default/vm".to_owned()).unwrap();
        let mut file = DeclaredFile::open(dir.path(), "n1", "b1").unwrap();
        let claim = Claim { addresses: vec!["10.9.0.1".parse().unwrap()], generation: 7 };
        file.claims.insert(key.clone(), claim.clone());
        let record = LinkRecord {
            index: 5,
            parameters: [("a/{}".into(), "1".into())].into(),
            ..LinkRecord::default()
        };
        file.links.insert("tap0".to_owned(), record.clone());
        file.save(dir.path()).unwrap();
        assert_eq!(DeclaredFile::open(dir.path(), "n1", "b1").unwrap(), file);
        let rebooted = DeclaredFile::open(dir.path(), "n1", "b2").unwrap();
        assert_eq!((rebooted.claims.get(&key), rebooted.links.len()), (Some(&claim), 0));
        assert_eq!(DeclaredFile::open(dir.path(), "n2", "b1").unwrap().claims.len(), 0);
        assert_eq!((links(dir.path(), "b1").unwrap().len(), links(dir.path(), "b2").unwrap().len()), (1, 0));
        file.claims.clear();
        file.links.clear();
        file.save(dir.path()).unwrap();
        assert!(!remove(dir.path()).unwrap(), "a file without content is removed");
    }
}
