//! Comparison of the screenshots in the README with the rendered page. `UPDATE_SCREENSHOTS=1` rewrites the
//! screenshots.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use image_compare::Algorithm;
use lab::processes::browser::Look;

use super::{
    overview::send_traffic,
    stage::{Stage, View, view_named},
};

/// Minimum structural similarity (0 to 1) of a stored screenshot and the page. Not 1, because ages and
/// addresses differ between runs; a broken or rearranged view is far below.
const LIKENESS_MIN: f64 = 0.75;

/// Viewport of the first picture of the README, which shows the whole map.
const TALL: Look = Look { height: 1440, ..Look::DESK };

/// Returns the required screenshots, each as file name, view, and viewport settings.
fn wanted() -> [(&'static str, View, Look); 4] {
    [
        ("overview", view_named("overview"), TALL),
        ("service", view_named("service"), Look::NIGHT),
        ("addresses", view_named("addresses"), Look::DESK),
        ("overview-phone", view_named("overview"), Look::PHONE),
    ]
}

/// Takes every screenshot and compares it with the stored one; adds a message to `wrong` for each that
/// differs or is missing. If `UPDATE_SCREENSHOTS` is set, stores the new screenshots instead.
pub(crate) fn check(stage: &mut Stage, wrong: &mut Vec<String>) {
    let is_update =
        std::env::var_os("UPDATE_SCREENSHOTS").is_some_and(|value| !value.is_empty() && value != "0");
    for (name, view, look) in wanted() {
        stage.browser.look(look).unwrap();
        if name == "overview" {
            send_traffic(stage);
        }
        stage.load(view);
        if name == "overview" {
            stage.browser.wait_for("#map [data-edge]").unwrap();
            stage.browser.wait_for("#busiest [data-key]").unwrap();
        }
        let taken = stage.browser.picture(name).unwrap();
        let kept =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/screenshots").join(format!("{name}.png"));
        let outcome = if is_update { keep(&taken, &kept) } else { compare(&taken, &kept) };
        if let Err(error) = outcome {
            wrong.push(format!("picture {name}: {error:#}"));
        }
    }
}

fn keep(taken: &PathBuf, kept: &Path) -> Result<()> {
    std::fs::create_dir_all(kept.parent().context("a file is in a directory")?)?;
    std::fs::copy(taken, kept).map(drop).context("it cannot be kept")
}

fn compare(taken: &Path, kept: &Path) -> Result<()> {
    let read = |path: &Path| {
        image::open(path)
            .map(|image| image.to_luma8())
            .with_context(|| format!("cannot read {}", path.display()))
    };
    let (taken, kept) = (read(taken)?, read(kept).context("UPDATE_SCREENSHOTS=1 takes it")?);
    ensure!(taken.dimensions() == kept.dimensions(), "{:?} was {:?}", taken.dimensions(), kept.dimensions());
    let likeness = image_compare::gray_similarity_structure(&Algorithm::MSSIMSimple, &taken, &kept)?.score;
    println!("page: picture likeness {likeness:.3} (bar {LIKENESS_MIN})");
    ensure!(
        likeness >= LIKENESS_MIN,
        "it is {likeness:.3} like the page, less than {LIKENESS_MIN}: look at both, then UPDATE_SCREENSHOTS=1"
    );
    Ok(())
}
