//! Tests of the overview with the demo data set: the live map, the recent changes, and the charts.

use anyhow::{Result, ensure};
use lab::{
    network::client,
    processes::browser::{Key, Look},
};
use serde_json::{Value, json};

use super::{
    legible::expect_readable,
    stage::{Stage, view_named},
};

/// Edge of the map to the machine whose backend is stopped.
const BROKEN: &str = "#map [data-edge='service:shop/checkout → host:node3']";
/// Maximum number of boxes in a column of the map.
const BOXES_MAX: u64 = 9;

/// Connections of a client to each address, so that edges have a width.
const CONNECTIONS: [usize; 3] = [40, 16, 8];

/// Checks the parts of the overview. Adds a message to `wrong` for each fault.
pub(crate) fn check(stage: &mut Stage, wrong: &mut Vec<String>) {
    stage.browser.look(Look::DESK).unwrap();
    send_traffic(stage);
    stage.load(view_named("overview"));
    stage.browser.wait_for("#map [data-edge]").unwrap();
    let checks = [
        ("traffic", expect_rates(stage)),
        ("map", expect_map(stage)),
        (
            "words",
            expect_readable(&mut stage.browser, "#map .path-title, #map .path-note, #recent, #busiest"),
        ),
        ("recent changes", expect_people(stage)),
        ("charts", expect_charts(stage)),
        ("range", expect_ranges(stage)),
        ("access", stage.browser.expect_accessible()),
        ("console", stage.browser.expect_quiet_console()),
    ];
    wrong.extend(
        checks
            .into_iter()
            .filter_map(|(what, check)| check.err().map(|error| format!("overview, {what}: {error:#}"))),
    );
}

/// Connects to the external addresses, and waits until the nodes have reported a rate.
pub(crate) fn send_traffic(stage: &mut Stage) {
    let addresses = stage.cluster.api.get_json("/v1/addresses?limit=10").unwrap();
    let addresses = addresses["items"].as_array().unwrap();
    for (address, connections) in addresses.iter().zip(CONNECTIONS) {
        let to = format!("{}:80", address["spec"]["address"].as_str().unwrap()).parse().unwrap();
        for _ in 0..connections {
            // A refused connection is counted as well.
            let _reply = client::tcp(&stage.cluster.topology.client, to);
        }
    }
    stage.wait_api("/v1/traffic", |traffic| {
        traffic["services"][0]["perSecond"]["connections"].as_f64().is_some_and(|rate| rate > 0.5)
    });
}

/// Asserts that the busiest Service is listed with its rate, and that its edges are wider than others.
fn expect_rates(stage: &mut Stage) -> Result<()> {
    stage.browser.wait_for("#busiest [data-key]")?;
    let wide = "Math.max(...[...document.querySelectorAll('#map .path-line')].map((one) => parseFloat(one.getAttribute('stroke-width')))) > 4";
    stage.browser.wait_true("an edge to be wide", wide)
}

/// Asserts that the map leads from an external address to the machines of the endpoints, that exactly the
/// broken edges are drawn as broken, that an edge opens the path of its Service, and that no column is long.
fn expect_map(stage: &mut Stage) -> Result<()> {
    let seen = stage.browser.script(
        "const edges = [...document.querySelectorAll('#map [data-edge]')]; \
         return {bad: edges.filter((one) => !['ok', 'draining'].includes(one.dataset.state)).map((one) => one.dataset.edge), \
             fronts: edges.filter((one) => one.dataset.edge.startsWith('address:172.25.1.209 → node:')).length, \
             columns: ['address', 'node', 'service', 'host'].map((kind) => document.querySelectorAll(`#map [data-box^='${kind}:']`).length), \
             href: document.querySelector(arguments[0])?.getAttribute('href')};",
        &[json!(BROKEN)],
    )?;
    ensure!(seen["bad"] == json!(["service:shop/checkout → host:node3"]), "broken: {seen:#}");
    ensure!(seen["fronts"] == json!(1), "the address has one announcer: {seen:#}");
    ensure!(seen["href"] == json!("#/services/shop/checkout"), "{seen:#}");
    let columns: Vec<u64> = serde_json::from_value(seen["columns"].clone())?;
    ensure!(columns.iter().all(|&boxes| (1..=BOXES_MAX).contains(&boxes)), "boxes in columns: {columns:?}");
    stage.browser.script("document.querySelector(arguments[0]).focus();", &[json!(BROKEN)])?;
    stage.browser.press(&[Key::Enter])?;
    stage.browser.wait_for("[data-view='service']")?;
    stage.load(view_named("overview"));
    stage.browser.wait_for("#map [data-edge]").map(drop)
}

/// Asserts that the changes of people are listed, with those of the control server folded under their cause.
fn expect_people(stage: &mut Stage) -> Result<()> {
    let seen = stage.browser.script(
        "const list = [...document.querySelectorAll('#recent .recent > li')]; \
         return {authors: list.map((one) => one.dataset.author), \
             isFolded: list[0]?.querySelector('details') && !list[0].querySelector('details').open, \
             followed: list[0]?.querySelector('details')?.textContent ?? ''};",
        &[],
    )?;
    let authors: Vec<String> = serde_json::from_value(seen["authors"].clone())?;
    ensure!(authors.first().is_some_and(|author| author == "ben"), "{authors:?}");
    ensure!(!authors.iter().any(|author| author == "tidegate"), "changes of the cluster first: {authors:?}");
    ensure!(seen["isFolded"] == json!(true), "what followed is not folded: {seen:#}");
    let followed = seen["followed"].as_str().unwrap_or_default();
    ensure!(followed.contains("EndpointHealth shop/checkout"), "{followed}");
    Ok(())
}

/// Asserts that charts have two or three ticks, that counts are drawn in steps, that all charts show the moment
/// that is pointed at in one, and that changes of people are marked.
fn expect_charts(stage: &mut Stage) -> Result<()> {
    let seen = stage.browser.script(
        "const charts = [...document.querySelectorAll('#charts [data-chart]')]; \
         return {ticks: charts.map((one) => one.querySelectorAll('.chart-ticks span').length), \
             step: document.querySelector(\"[data-chart='Services that are not ok'] .chart-line\").getAttribute('d'), \
             marks: [...document.querySelectorAll('#charts .chart-mark')].filter((one) => /by ben/.test(one.dataset.label) && one.href.includes('#/history/')).length};",
        &[],
    )?;
    let ticks: Vec<u64> = serde_json::from_value(seen["ticks"].clone())?;
    ensure!(ticks.len() >= 6 && ticks.iter().all(|ticks| (2..=3).contains(ticks)), "ticks: {ticks:?}");
    let step = seen["step"].as_str().unwrap_or_default();
    ensure!(step.starts_with('M') && !step.contains('L'), "a count is drawn as a slope: {step}");
    ensure!(seen["marks"].as_u64() >= Some(ticks.len() as u64), "marks of changes: {seen:#}");
    stage.browser.script(
        "const box = document.querySelector('#charts .chart-box'); const room = box.getBoundingClientRect(); \
         box.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: room.left + room.width / 2, clientY: room.top + 5}));",
        &[],
    )?;
    let is_shared = format!("document.querySelectorAll('#charts .chart-at').length === {}", ticks.len());
    stage.browser.wait_true("all charts to show the moment", &is_shared)
}

/// Asserts that exactly the ranges are offered of which the server has values, and that a choice is in the link.
fn expect_ranges(stage: &mut Stage) -> Result<()> {
    let series = stage.cluster.api.get_json("/v1/series?of=cluster")?;
    let points = series["series"][0]["points"].as_array().map_or(0, Vec::len) as u64;
    let seconds = points * series["stepSeconds"].as_u64().unwrap_or_default();
    let offered = stage.browser.script(
        "return [...document.querySelectorAll('#charts .ranges button')].map((one) => one.textContent);",
        &[],
    )?;
    let wanted = [(0, "5 min"), (300, "15 min"), (900, "1 h")];
    let wanted: Vec<_> =
        wanted.iter().filter(|(least, _)| *least == 0 || seconds > *least).map(|(_, label)| *label).collect();
    ensure!(offered == json!(wanted), "{offered} of {seconds} s");
    stage.browser.script("document.querySelector('#charts .ranges button').click();", &[])?;
    stage.browser.wait_true("the range to be in the link", "location.hash.includes('range=300')")?;
    let pressed = stage.browser.script(
        "return [...document.querySelectorAll('#charts .ranges [aria-pressed=true]')].map((one) => one.textContent);",
        &[],
    )?;
    ensure!(pressed == Value::from(vec!["5 min"]), "{pressed}");
    Ok(())
}
