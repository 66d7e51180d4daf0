//! What a run has found: figures, which are written, read again, and shown as a page and a plot.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::host::{Host, Load};

/// Everything that a run of a benchmark has found. Its page and its plot say what the figures say, and nothing else.
pub trait Report: Serialize + DeserializeOwned {
    /// The benchmark's name: of its command and of its files.
    const NAME: &'static str;

    /// The page, as it is written.
    fn page(&self) -> String;

    /// The plot, as it is written.
    fn plot(&self) -> String;

    /// How busy the machine was; none before the end of the run.
    fn load(&self) -> Option<&Load>;

    /// Why the figures say little; none when the machine was quiet.
    fn too_busy(&self) -> Option<String> {
        self.load().and_then(Load::too_busy)
    }

    /// Writes `NAME.json` with every figure, `NAME.md` and `NAME.svg`.
    ///
    /// # Errors
    /// The directory cannot be written.
    fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let json = serde_json::to_string_pretty(self).context("figures serialise")? + "\n";
        let figures = (format!("{}.json", Self::NAME), json);
        for (name, text) in [figures].into_iter().chain(files(self)) {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// The names of the page and of the plot, with what is in them.
fn files<R: Report>(report: &R) -> [(String, String); 2] {
    [(format!("{}.md", R::NAME), report.page()), (format!("{}.svg", R::NAME), report.plot())]
}

/// The page and the plot of what a run wrote into a directory, by their names; nothing when none ever did.
///
/// # Errors
/// The figures cannot be read, or are of another version of the benchmark.
pub(crate) fn again<R: Report>(directory: &Path) -> Result<Vec<(String, String)>> {
    let path = directory.join(format!("{}.json", R::NAME));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let report: R = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(files(&report).into())
}

/// What a benchmark measures at one setting, such as a proxy mode at a number of Services.
pub trait Measure: Serialize + DeserializeOwned {
    /// The benchmark's name: of its command and of its files.
    const NAME: &'static str;

    /// The page of a run.
    fn page(record: &Record<Self>) -> String;

    /// The plot of a run.
    fn plot(record: &Record<Self>) -> String;
}

/// Points of one sort, with where and how they were measured.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record<P> {
    /// The machine.
    pub host: Host,
    /// What was measured, and beside what.
    pub versions: Vec<String>,
    /// Set at the end.
    pub load: Option<Load>,
    /// In the order in which they were measured.
    pub points: Vec<P>,
}

impl<P> Record<P> {
    /// Nothing yet, on this machine.
    ///
    /// # Errors
    /// The kernel does not say what machine it is.
    pub fn begin(versions: Vec<String>) -> Result<Self> {
        Ok(Self { host: Host::ask()?, versions, load: None, points: Vec::new() })
    }
}

impl<P: Measure> Report for Record<P> {
    const NAME: &'static str = P::NAME;

    fn page(&self) -> String {
        P::page(self)
    }

    fn plot(&self) -> String {
        P::plot(self)
    }

    fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }
}
