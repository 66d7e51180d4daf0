//! Index of the objects of all files. If several files contain the same object, the first in path order is
//! used. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    path::{Path, PathBuf},
};

use imbl::OrdMap;
use model::kinds::resource::{Object, ObjectKey};

/// Objects of all files by key. If several files contain an object, the first in path order is used.
#[derive(Debug, Default)]
pub(super) struct FileIndex {
    files: BTreeMap<PathBuf, BTreeMap<ObjectKey, Object>>,
    /// Files that contain each object; the first in path order is used.
    claims: BTreeMap<ObjectKey, BTreeSet<PathBuf>>,
    /// Objects that occur more than once in the same file.
    repeated: BTreeMap<PathBuf, BTreeSet<ObjectKey>>,
    objects: OrdMap<ObjectKey, Object>,
}

impl FileIndex {
    /// Returns the merged objects of all files. The map shares unchanged data with earlier results, so that
    /// comparing two results costs only their difference.
    pub(super) const fn objects(&self) -> &OrdMap<ObjectKey, Object> {
        &self.objects
    }

    /// Returns true if the file has been read successfully.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// Replaces the objects of a file that has been read.
    pub(super) fn put(&mut self, path: &Path, objects: Vec<Object>) {
        let mut new = BTreeMap::new();
        let mut repeated = BTreeSet::new();
        for object in objects {
            let key = object.key();
            match new.entry(key) {
                Entry::Occupied(first) => {
                    repeated.insert(first.key().clone());
                }
                Entry::Vacant(place) => {
                    place.insert(object);
                }
            }
        }
        let old = self.files.insert(path.to_owned(), new.clone()).unwrap_or_default();
        self.repeated.remove(path);
        if !repeated.is_empty() {
            self.repeated.insert(path.to_owned(), repeated);
        }
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            self.unclaim(key, path);
        }
        for key in new.keys() {
            self.claims.entry(key.clone()).or_default().insert(path.to_owned());
            self.settle(key);
        }
    }

    /// Removes the objects of a file that no longer exists.
    pub(super) fn remove(&mut self, path: &Path) {
        self.repeated.remove(path);
        for key in self.files.remove(path).unwrap_or_default().keys() {
            self.unclaim(key, path);
        }
    }

    /// Returns a message for each object that occurs in several files, or several times in one file.
    pub(super) fn duplicates(&self) -> Vec<String> {
        let several = self.claims.iter().filter(|(_, files)| files.len() > 1);
        let several = several.map(|(key, files)| {
            let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            format!("{key} is in {}; the first is used", files.join(" and "))
        });
        let repeated = self.repeated.iter().flat_map(|(path, keys)| {
            keys.iter()
                .map(move |key| format!("{key} is more than once in {}; the first is used", path.display()))
        });
        several.chain(repeated).collect()
    }

    fn unclaim(&mut self, key: &ObjectKey, path: &Path) {
        if let Some(files) = self.claims.get_mut(key) {
            files.remove(path);
            if files.is_empty() {
                self.claims.remove(key);
            }
        }
        self.settle(key);
    }

    /// Updates the merged object with this key after a change of a file, from the first file in path order
    /// that contains the object.
    fn settle(&mut self, key: &ObjectKey) {
        let first = self.claims.get(key).and_then(BTreeSet::first);
        match first.and_then(|path| self.files.get(path)).and_then(|objects| objects.get(key)) {
            Some(object) if self.objects.get(key) == Some(object) => {}
            Some(object) => {
                self.objects.insert(key.clone(), object.clone());
            }
            None => {
                self.objects.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::admission::decode::{Expect, decode};
    use serde_json::json;

    use super::*;

    fn workload(name: &str, address: &str) -> Object {
        let value =
            json!({ "kind": "Workload", "metadata": { "name": name }, "spec": { "addresses": [address] } });
        decode(&value, &Expect::default()).unwrap()
    }

    fn address(shelf: &FileIndex) -> Option<String> {
        let object = shelf.objects().values().next()?;
        object.to_json()["spec"]["addresses"][0].as_str().map(str::to_owned)
    }

    #[test]
    fn of_several_files_with_an_object_the_first_counts_until_it_goes() {
        let mut shelf = FileIndex::default();
        shelf.put(Path::new("b.yaml"), vec![workload("w", "10.0.0.2")]);
        shelf.put(Path::new("a.yaml"), vec![workload("w", "10.0.0.1"), workload("w", "10.0.0.9")]);
        assert_eq!(address(&shelf).as_deref(), Some("10.0.0.1"));
        assert_eq!(
            shelf.duplicates(),
            [
                "Workload default/w is in a.yaml and b.yaml; the first is used",
                "Workload default/w is more than once in a.yaml; the first is used"
            ]
        );
        shelf.remove(Path::new("a.yaml"));
        assert_eq!((address(&shelf).as_deref(), shelf.duplicates().len()), (Some("10.0.0.2"), 0));
        shelf.put(Path::new("b.yaml"), vec![]);
        assert!(shelf.objects().is_empty());
    }

    #[test]
    fn a_file_that_says_the_same_again_changes_nothing() {
        let mut shelf = FileIndex::default();
        shelf.put(Path::new("a.yaml"), vec![workload("w", "10.0.0.1")]);
        let before = shelf.objects().clone();
        shelf.put(Path::new("a.yaml"), vec![workload("w", "10.0.0.1")]);
        assert!(before.ptr_eq(shelf.objects()));
    }
}
