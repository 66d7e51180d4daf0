//! A cluster with the demo set, and a browser that looks at its page.

use anyhow::{Result, ensure};
use lab::{
    cluster::deployment::{Cluster, Options},
    fixtures::teams as demo,
    host::wait,
    processes::browser::{Browser, Look},
};
use serde_json::Value;

/// A view of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// What its root says of itself in `data-view`.
    pub(crate) name: &'static str,
    /// Where it is: what follows `#/`.
    pub(crate) link: &'static str,
    /// What is there once the view has all that it asks for.
    pub(crate) shows: &'static str,
}

/// Stands in a link for the newest revision.
const NEWEST: &str = "NEWEST";

const fn view(name: &'static str, link: &'static str, shows: &'static str) -> View {
    View { name, link, shows }
}

/// Every view, on the demo set.
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

/// A view by its name.
pub(crate) fn view_named(name: &str) -> View {
    *VIEWS.iter().find(|view| view.name == name).unwrap()
}

/// The cluster and the browser; both go with it.
pub(crate) struct Stage {
    pub(crate) browser: Browser,
    pub(crate) cluster: Cluster,
}

impl Stage {
    /// A cluster of three nodes with the demo set, all of it well.
    pub(crate) fn new() -> Self {
        let mut cluster = Cluster::start(&Options { lan: true, ..Options::default() }).unwrap();
        demo::add(&mut cluster).unwrap();
        let browser = Browser::start(&cluster.topology.control, Look::DESK).unwrap();
        Self { browser, cluster }
    }

    /// Opens a view by its link, in a page that is loaded anew, and waits until it is there and the data is live.
    #[track_caller]
    pub(crate) fn load(&mut self, view: View) {
        let newest =
            self.cluster.api.get_json("/v1/history?limit=1").unwrap()["items"][0]["revision"].to_string();
        let url = format!("{}/#/{}", self.cluster.api.url(), view.link.replace(NEWEST, &newest));
        // The same address with another fragment would not be loaded again.
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

    /// Waits until the API answers something that is as wanted.
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

/// Demands that nothing is wider than the screen.
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
