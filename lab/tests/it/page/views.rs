//! Tests of every view of the page: it opens by its link, matches the API, logs no error, is accessible, and
//! fits a phone.

use lab::{fixtures::teams as demo, processes::browser::Look};

use super::{
    fields, legible, names, overview, pictures, reference,
    stage::{Stage, VIEWS, expect_no_sideways_scroll, view_named},
};

/// Every view of the page opens by its link and shows the values of the API, and neither the browser console
/// nor axe-core reports a serious problem, with a light and a dark color scheme and on a phone.
#[test]
fn every_view_opens_by_its_link_tells_the_truth_and_keeps_nobody_out() {
    let mut stage = Stage::new();
    demo::fall_ill(&mut stage.cluster).unwrap();
    let mut wrong = Vec::new();
    for view in VIEWS {
        stage.browser.look(Look::DESK).unwrap();
        stage.load(view);
        let counted = fields::expect_true(&mut stage.browser, &stage.cluster.api, view.name).and_then(
            |count| match view.name {
                // Forms show no numbers until they are filled; rows of lists name their objects instead.
                "plan" | "explain" | "bgp" | "history" => Ok(count),
                _ => fields::expect_some(count, view.name).map(|()| count),
            },
        );
        match &counted {
            Ok(count) => println!("page: {}: {count} fields are what the API says", view.name),
            Err(error) => wrong.push(format!("{}: {error:#}", view.name)),
        }
        for (look, name) in [(Look::DESK, "day"), (Look::NIGHT, "night"), (Look::PHONE, "phone")] {
            stage.browser.look(look).unwrap();
            let label = format!("{} by {name}", view.name);
            let checks = [
                stage.browser.expect_accessible(),
                expect_no_sideways_scroll(&mut stage.browser),
                stage.browser.picture(&format!("{}-{name}", view.name)).map(drop),
                stage.browser.expect_quiet_console(),
            ];
            wrong.extend(
                checks.into_iter().filter_map(Result::err).map(|error| format!("{label}: {error:#}")),
            );
        }
    }
    legible::check(&mut stage, &mut wrong);
    reference::check(&mut stage, &mut wrong);
    overview::check(&mut stage, &mut wrong);
    pictures::check(&mut stage, &mut wrong);
    names::check(&mut stage, &mut wrong);
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// A click on a number shows the API field that contains the number, and the curl command that the page
/// copies returns this value.
#[test]
fn a_click_on_a_number_names_the_field_of_the_api_that_it_is() {
    let mut stage = Stage::new();
    stage.load(view_named("services"));
    let field = "[data-view='services'] [data-field='/v1/overview#/totals/services/total']";
    stage.browser.click(field).unwrap();
    stage.browser.wait_for(".source").unwrap();
    let said = stage.browser.text(".source").unwrap();
    let number = stage.browser.text(field).unwrap();
    assert!(said.contains("GET /v1/overview") && said.contains("/totals/services/total"), "{said}");
    assert!(said.contains(&number), "{said} does not say {number}");
    stage.browser.press(&[lab::processes::browser::Key::Escape]).unwrap();
    assert_eq!(stage.browser.count(".source").unwrap(), 0);
    stage.browser.expect_quiet_console().unwrap();
}
