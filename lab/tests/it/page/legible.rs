//! Measurement of the texts of the page: no word is cut or broken, and nothing is wider than the window, from a
//! phone to a desktop. Also checks the footer and the view of unknown links.

use anyhow::{Result, ensure};
use lab::processes::browser::{Browser, Look};
use serde_json::{Value, json};

use super::stage::{Stage, expect_no_sideways_scroll, view_named};

/// A laptop with another window beside that of the browser.
const LAPTOP: Look = Look { width: 1024, height: 768, is_phone: false, is_dark: false };
/// Latest point on a phone, in CSS pixels from the top, at which the first problem begins.
const FIRST_PROBLEM_TOP_MAX: u64 = 600;

/// Script that returns the texts in the selected elements that are cut by their box, and the words that are
/// broken in two lines.
const UNREADABLE: &str = "const out = []; \
    for (const root of document.querySelectorAll(arguments[0])) { \
        for (const one of [root, ...root.querySelectorAll('*')]) { \
            if (!one.clientWidth || one.closest('svg, .unseen')) continue; \
            if (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible') out.push('cut: ' + one.textContent); \
        } \
        const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT); \
        for (let text; (text = walker.nextNode()); ) { \
            if (text.parentElement.closest('.unseen')) continue; \
            for (const word of text.data.matchAll(/[^\\s\\/·-]+/g)) { \
                const range = document.createRange(); \
                range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length); \
                if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) out.push('broken: ' + word[0]); \
            } \
        } \
    } \
    return out.slice(0, 8);";

/// Measures the table of Services at three widths and other tables at two, and checks the footer, the view of an unknown link and the
/// order of the overview on a phone. Adds a message to `wrong` for each fault.
pub(crate) fn check(stage: &mut Stage, wrong: &mut Vec<String>) {
    for look in [Look::DESK, LAPTOP, Look::PHONE] {
        stage.browser.look(look).unwrap();
        stage.load(view_named("services"));
        let label = format!("Services at {} px", look.width);
        let checks = [
            expect_readable(&mut stage.browser, "[data-table='services'], .foot"),
            expect_inside(&mut stage.browser, "[data-table='services'] [data-column]"),
            expect_no_sideways_scroll(&mut stage.browser),
            expect_outside_first(&mut stage.browser),
        ];
        wrong.extend(checks.into_iter().filter_map(Result::err).map(|error| format!("{label}: {error:#}")));
    }
    for look in [LAPTOP, Look::PHONE] {
        stage.browser.look(look).unwrap();
        for name in ["nodes", "addresses", "service"] {
            stage.load(view_named(name));
            let checks = [
                expect_readable(&mut stage.browser, "[data-table]"),
                expect_no_sideways_scroll(&mut stage.browser),
            ];
            let label = format!("{name} at {} px", look.width);
            wrong.extend(
                checks.into_iter().filter_map(Result::err).map(|error| format!("{label}: {error:#}")),
            );
        }
    }
    let checks =
        [expect_footer(stage), expect_owners(stage), expect_missing(stage), expect_problems_first(stage)];
    wrong.extend(checks.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")));
}

/// Asserts that the texts in the selected elements are neither cut nor broken.
pub(crate) fn expect_readable(browser: &mut Browser, selector: &str) -> Result<()> {
    let seen = browser.script(UNREADABLE, &[json!(selector)])?;
    ensure!(seen == json!([]), "texts that cannot be read: {seen:#}");
    Ok(())
}

/// Asserts that the selected elements end inside the window.
fn expect_inside(browser: &mut Browser, selector: &str) -> Result<()> {
    let seen = browser.script(
        "return [...document.querySelectorAll(arguments[0])].filter((one) => one.getBoundingClientRect().right > innerWidth + 1).length;",
        &[json!(selector)],
    )?;
    ensure!(seen == json!(0), "{seen} elements end outside of the window");
    Ok(())
}

/// Asserts that the address of clients outside is the first of a Service.
fn expect_outside_first(browser: &mut Browser) -> Result<()> {
    let addresses = browser.text("[data-key='shop/checkout'] [data-column='addresses']")?;
    ensure!(addresses.starts_with("172.25.1."), "{addresses}");
    let endpoints = browser.text("[data-key='shop/cart'] [data-column='endpoints']")?;
    ensure!(endpoints.contains("not checked"), "nobody checks them, and it says {endpoints}");
    Ok(())
}

/// Asserts that the footer has the version of the server, a link to the API reference, and a button that copies
/// diagnostics.
fn expect_footer(stage: &mut Stage) -> Result<()> {
    let version = stage.cluster.api.get_json("/v1/overview")?["version"].clone();
    let foot = stage.browser.text(".foot")?;
    ensure!(version.as_str().is_some_and(|version| foot.contains(version)), "no {version} in {foot}");
    ensure!(stage.browser.count(".foot a[href='/docs/']")? == 1, "no link to the API reference");
    // Without TLS the page copies by a command, and headless browsers have no clipboard that a test can read.
    stage.browser.script(
        "document.execCommand = () => { window.copied = document.querySelector('body > textarea').value; return true; };",
        &[],
    )?;
    stage.browser.click(".foot button")?;
    stage.browser.wait_true("the diagnostics to be copied", "typeof window.copied === 'string'")?;
    let copied = stage.browser.script("return JSON.parse(window.copied);", &[])?;
    ensure!(copied["tidegate"] == version && copied["page"]["connection"] == "live", "{copied:#}");
    Ok(())
}

/// Asserts that an address has the list of the nodes that announced it.
fn expect_owners(stage: &mut Stage) -> Result<()> {
    stage.browser.script("location.hash = '#/addresses/172.25.1.209';", &[])?;
    stage.browser.wait_for("#owners [data-key]")?;
    let said = stage.browser.text("#owners")?;
    ensure!(said.contains("node"), "{said}");
    stage.browser.expect_accessible()
}

/// Asserts that an unknown link says that there is no such view, and not something else.
fn expect_missing(stage: &mut Stage) -> Result<()> {
    stage.browser.script("location.hash = '#/nosuch';", &[])?;
    stage.browser.wait_for("[data-view='missing']")?;
    let said = stage.browser.text("main")?;
    ensure!(said.contains("#/nosuch"), "{said}");
    stage.browser.expect_accessible()
}

/// Asserts that the first problem is in sight on a phone.
fn expect_problems_first(stage: &mut Stage) -> Result<()> {
    stage.browser.look(Look::PHONE)?;
    stage.load(view_named("overview"));
    let top = stage.browser.script(
        "return Math.round(document.querySelector('#problems [data-problem]').getBoundingClientRect().top + scrollY);",
        &[],
    )?;
    ensure!(Value::as_u64(&top).is_some_and(|top| top <= FIRST_PROBLEM_TOP_MAX), "it begins at {top}");
    Ok(())
}
