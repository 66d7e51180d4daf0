//! The pages of the benchmarks say what the figures beside them say.

use std::{fs, path::Path};

use bench::targets;

#[test]
fn every_page_and_plot_is_made_of_the_figures_beside_it() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
    let files = targets::pages(&directory).unwrap();
    // Of each benchmark a page and a plot, and the first page.
    assert_eq!(files.len(), 2 * targets::BENCHMARKS.len() + 1);
    for (name, made) in files {
        let path = directory.join(&name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &made).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == made, "{name}: run `bench pages` and read the diff");
    }
}
