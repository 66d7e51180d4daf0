//! Cluster with the demo data set, and a browser that shows the status page of the cluster.

use anyhow::{Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::teams as demo,
    host::wait,
    processes::browser::{Browser, Look},
};
use serde_json::Value;

/// View of the status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Value of the attribute `data-view` on the root element of the view.
    pub(crate) name: &'static str,
    /// Fragment of the view's URL after `#/`.
    pub(crate) link: &'static str,
    /// Selector of an element present once the view has loaded.
    pub(crate) shows: &'static str,
}

/// Placeholder in a link for the newest revision.
const NEWEST: &str = "NEWEST";

const fn view(name: &'static str, link: &'static str, shows: &'static str) -> View {
    View { name, link, shows }
}

/// Views of the page that the tests open, with the demo data set.
pub(crate) const VIEWS: [View; 11] = [
    view("overview", "", "[data-field='/v1/overview#/totals/services/ok']"),
    view("services", "services", "[data-key='shop/checkout']"),
    view("service", "services/shop/checkout", "svg"),
    view("nodes", "nodes", "[data-key='node1']"),
    view("node", "nodes/node1", "[data-field]"),
    view("addresses", "addresses", "[data-key='172.25.1.208']"),
    view("bgp", "bgp", "h1"),
    view("history", "history", "[data-key]"),
    view("change", "history/NEWEST", "[data-field]"),
    view("plan", "plan", "textarea"),
    view("explain", "explain", "form"),
];

/// Returns the view of the page that has this name.
pub(crate) fn view_named(name: &str) -> View {
    *VIEWS.iter().find(|view| view.name == name).unwrap()
}

/// Cluster with the browser.
pub(crate) struct Stage {
    pub(crate) browser: Browser,
    pub(crate) cluster: Cluster,
}

impl Stage {
    /// Starts a cluster of three nodes with the demo data set, in which all backends are healthy, and a
    /// browser.
    pub(crate) fn new() -> Self {
        let mut cluster = Cluster::start(&Options { lan: true, ..Options::default() }).unwrap();
        demo::add(&mut cluster).unwrap();
        let browser = Browser::start(&cluster.topology.control, Look::DESK).unwrap();
        Self { browser, cluster }
    }

    /// Loads the page anew, opens a view by its link, and waits until the view shows data from the control
    /// server.
    #[track_caller]
    pub(crate) fn load(&mut self, view: View) {
        let newest =
            self.cluster.api.get_json("/v1/history?limit=1").unwrap()["items"][0]["revision"].to_string();
        let url = format!("{}/#/{}", self.cluster.api.url(), view.link.replace(NEWEST, &newest));
        // The same URL with another fragment would not be reloaded.
        self.browser.open("about:blank").unwrap();
        self.browser.open(&url).unwrap();
        self.settle(view);
    }

    #[track_caller]
    fn settle(&mut self, view: View) {
        self.browser.wait_for(&format!("[data-view='{}']", view.name)).unwrap();
        self.browser.wait_for(&format!("[data-view='{}'] {}", view.name, view.shows)).unwrap();
        self.browser.wait_for("#live[data-state='live']").unwrap();
        let quiet = "!document.querySelector('main [aria-busy=true]')";
        self.browser.wait_true("nothing to be on its way", quiet).unwrap();
    }

    /// Waits until the API response at a path satisfies a condition.
    #[track_caller]
    pub(crate) fn wait_api(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait::until(&format!("{path} to be as wanted"), || {
            let answer = self.cluster.api.get_json(path)?;
            ensure!(is_so(&answer), "{answer:#}");
            Ok(answer)
        })
        .unwrap()
    }
}

/// Asserts that the page does not scroll horizontally.
pub(crate) fn expect_no_sideways_scroll(browser: &mut Browser) -> Result<()> {
    let seen = browser.script(
        "const root = document.scrollingElement; const out = []; \
         for (const one of document.querySelectorAll('body *')) { \
             const box = one.getBoundingClientRect(); \
             if (box.width && box.right > innerWidth + 1 && !one.closest('[data-scrolls], pre, .scrolls, svg, table')) \
                 out.push(one.tagName + '.' + (one.getAttribute('class') ?? '') + ' ends at ' + Math.round(box.right)); \
         } \
         return {wide: root.scrollWidth, screen: innerWidth, out: out.slice(0, 8)};",
        &[],
    )?;
    ensure!(seen["wide"].as_u64() <= seen["screen"].as_u64(), "the page can be scrolled sideways: {seen:#}");
    Ok(())
}
