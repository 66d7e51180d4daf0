//! Results of a run, which are written to a file, read again, and rendered as a page and a plot.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::host::{Host, Load};

/// Results of a benchmark. Page and plot are derived from the stored values only.
pub trait Report: Serialize + DeserializeOwned {
    /// Name of the benchmark, used for its command and for its files.
    const NAME: &'static str;

    /// Renders the page as Markdown.
    fn page(&self) -> String;

    /// Renders the plot as SVG.
    fn plot(&self) -> String;

    /// Returns the load of the machine during the run, or `None` before the end of the run.
    fn load(&self) -> Option<&Load>;

    /// Returns the reason why the results are unreliable, or `None` if the machine was idle enough.
    fn too_busy(&self) -> Option<String> {
        self.load().and_then(Load::too_busy)
    }

    /// Writes `NAME.json` with all values, `NAME.md` and `NAME.svg`.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written.
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

/// Returns the names and contents of the page and of the plot.
fn files<R: Report>(report: &R) -> [(String, String); 2] {
    [(format!("{}.md", R::NAME), report.page()), (format!("{}.svg", R::NAME), report.plot())]
}

/// Regenerates the page and the plot from the results in a directory. Returns the file names and contents; empty
/// without results.
///
/// # Errors
/// Returns an error if the results cannot be read or belong to a different version of the benchmark.
pub(crate) fn again<R: Report>(directory: &Path) -> Result<Vec<(String, String)>> {
    let path = directory.join(format!("{}.json", R::NAME));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let report: R = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(files(&report).into())
}

/// Results of a benchmark at one setting, such as a proxy mode at a number of Services.
pub trait Measure: Serialize + DeserializeOwned {
    /// Name of the benchmark, used for its command and for its files.
    const NAME: &'static str;

    /// Renders the page of a run as Markdown.
    fn page(record: &Record<Self>) -> String;

    /// Renders the plot of a run as SVG.
    fn plot(record: &Record<Self>) -> String;
}

/// Measured points of one benchmark, with their environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record<P> {
    /// Description of the measuring machine.
    pub host: Host,
    /// Versions of the tested software.
    pub versions: Vec<String>,
    /// Load of the machine during the run; `None` before the end of the run.
    pub load: Option<Load>,
    /// Results in the order of measurement.
    pub points: Vec<P>,
}

impl<P> Record<P> {
    /// Creates a record without results, which describes this machine.
    ///
    /// # Errors
    /// Returns an error if the machine properties cannot be read.
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
