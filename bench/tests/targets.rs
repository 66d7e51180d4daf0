//! The first page of the benchmarks says what the figures beside it say.

use std::{fs, path::Path};

use bench::targets::{Written, page};

#[test]
fn the_first_page_is_made_of_the_figures_beside_it() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
    let made = page(&Written::read(&directory).unwrap());
    let path = directory.join("README.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), made, "run `bench targets` and read the diff");
}
