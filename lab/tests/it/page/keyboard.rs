//! Test that the page can be used with only a keyboard.

use lab::processes::browser::Key;
use serde_json::{Value, json};

use super::stage::{Stage, view_named};

/// Maximum number of focus steps through one view.
const STEPS_MAX: usize = 60;

fn focused(stage: &mut Stage) -> Value {
    stage
        .browser
        .script(
            "const one = document.activeElement; const box = one.getBoundingClientRect(); \
             const line = one.querySelector('.path-line'); \
             const style = getComputedStyle(one.closest('.path-box') ?? one); \
             const isOutlined = line ? parseFloat(getComputedStyle(line).strokeWidth) >= 5 : style.outlineStyle !== 'none' || style.boxShadow !== 'none'; \
             return {tag: one.tagName, id: one.id, href: one.getAttribute('href'), name: one.getAttribute('aria-label') ?? one.innerText ?? '', \
                 isSeen: one === document.body || (box.width > 0 && isOutlined), \
                 view: one.closest('[data-view]')?.dataset.view};",
            &[],
        )
        .unwrap()
}

/// With the keyboard alone, a user can skip to the content, search and open a result, change the view by
/// letter keys, move through rows and open one, and leave a dialog. The focus is always visible.
#[test]
fn everything_can_be_reached_and_left_by_the_keyboard_alone_and_the_focus_is_always_seen() {
    let mut stage = Stage::new();
    stage.load(view_named("overview"));

    let mut seen = Vec::new();
    for _ in 0..STEPS_MAX {
        stage.browser.press(&[Key::Tab]).unwrap();
        let now = focused(&mut stage);
        assert_eq!(now["isSeen"], json!(true), "the focus cannot be seen on {now}");
        seen.push(now);
    }
    assert!(
        seen[0]["name"].as_str().unwrap().contains("Skip"),
        "the first key leads past the menu: {}",
        seen[0]
    );
    for wanted in
        ["#/services", "#/nodes", "#/addresses", "#/bgp", "#/dns", "#/history", "#/plan", "#/explain"]
    {
        assert!(seen.iter().any(|one| one["href"] == wanted), "{wanted} cannot be reached by Tab: {seen:#?}");
    }
    assert!(
        seen.iter().any(|one| one["view"] == "overview"),
        "nothing in the view can be reached: {seen:#?}"
    );

    stage.load(view_named("overview"));
    stage.browser.press(&[Key::Of('/')]).unwrap();
    assert_eq!(focused(&mut stage)["id"], "search");
    let typed: Vec<_> = "checkout".chars().map(Key::Of).collect();
    stage.browser.press(&typed).unwrap();
    stage.browser.wait_for("#hits [aria-selected='true']").unwrap();
    stage.browser.press(&[Key::Enter]).unwrap();
    stage.browser.wait_for("[data-view='service']").unwrap();
    assert!(stage.browser.text("h1").unwrap().contains("checkout"));

    stage.browser.press(&[Key::Of('g'), Key::Of('s')]).unwrap();
    stage.browser.wait_for("[data-view='services'] [data-key]").unwrap();
    stage.browser.press(&[Key::Of('j'), Key::Of('j')]).unwrap();
    let row = focused(&mut stage);
    assert!(row["href"].as_str().unwrap_or_default().starts_with("#/services/"), "{row}");
    stage.browser.press(&[Key::Enter]).unwrap();
    stage.browser.wait_for("[data-view='service']").unwrap();

    stage.browser.press(&[Key::Of('?')]).unwrap();
    stage.browser.wait_for("dialog[open], [role='dialog']").unwrap();
    stage.browser.expect_accessible().unwrap();
    stage.browser.press(&[Key::Escape]).unwrap();
    stage
        .browser
        .wait_true("the dialog to be closed", "!document.querySelector('dialog[open], [role=dialog]')")
        .unwrap();
    stage.browser.expect_quiet_console().unwrap();
}
