//! Test that runs the write benchmark at a small size, with real stores and many clients, and renders its page.
//! No time is asserted.

use std::time::Duration;

use bench::{
    pages::record::Report as _,
    writes::{self, BULK, Options, WritesStore},
};

#[test]
fn every_store_takes_single_and_bulk_writes_and_the_page_says_how_many() {
    let options = Options { rounds: 1, slice: Duration::from_millis(300), clients: vec![1, 8] };
    let record = writes::run(&options, &mut |_| Ok(())).unwrap();
    for store in [WritesStore::Sqlite, WritesStore::Etcd] {
        for clients in [1, 8] {
            for objects in [1, BULK] {
                let point = record
                    .points
                    .iter()
                    .find(|point| (point.store, point.clients, point.objects) == (store, clients, objects));
                assert!(point.unwrap().per_second[0] > 0.0);
            }
        }
    }
    assert_eq!(record.points[0].store, WritesStore::Disk, "the bound is measured in the same run");
    let directory = tempfile::tempdir().unwrap();
    record.write(directory.path()).unwrap();
    let page = std::fs::read_to_string(directory.path().join("writes.md")).unwrap();
    assert!(page.contains("| sqlite | 8 | 100 | 1 |") && page.contains("| etcd | 1 | 1 | 1 |"), "{page}");
}
