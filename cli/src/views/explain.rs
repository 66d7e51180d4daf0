//! Human-readable output of `explain`. Pure.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    lenient_json::{clean, flag, items, number, text},
    terminal::{
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::columns::socket,
};

/// Renders an explanation: the summary, the common steps, then the path through each node.
#[must_use]
pub fn explanation(explanation: &Value, style: Style) -> String {
    let mut out = String::new();
    line(&mut out, &style.paint(Tone::Title, &clean(&text(explanation, "/subject"))));
    let tone = if explanation.get("broken").is_some() { Tone::Bad } else { Tone::Good };
    line(&mut out, &style.paint(tone, &clean(&text(explanation, "/summary"))));
    let whole = items(explanation, "/steps");
    if !whole.is_empty() {
        line(&mut out, "");
        whole.iter().for_each(|one| step(&mut out, one, style));
    }
    items(explanation, "/paths").iter().for_each(|one| path(&mut out, one, style));
    let omitted = number(explanation, "/pathsOmitted");
    if omitted > 0 {
        line(&mut out, &format!("\n{omitted} more ways are left out; --at NODE shows those of one node"));
    }
    out
}

fn path(out: &mut String, path: &Value, style: Style) {
    let protocol = text(path, "/packet/protocol").to_lowercase();
    let to = socket(&text(path, "/packet/destination"), &text(path, "/packet/port"));
    let packet = format!("{} -> {to}/{protocol}", text(path, "/packet/source"));
    let mode = text(path, "/mode");
    let mode = if mode.is_empty() { String::new() } else { format!(" ({mode})") };
    let title = style.paint(Tone::Title, &clean(&format!("{}{mode}: {packet}", text(path, "/node"))));
    line(out, &format!("\n{title}"));
    line(out, &style.paint(Tone::Faint, &format!("  this node because {}", clean(&text(path, "/chosen")))));
    items(path, "/steps").iter().for_each(|one| step(out, one, style));
    candidates(out, path, style);
    line(out, &format!("  desired: it {}", clean(&text(path, "/fate"))));
    let Some(kernel) = path.get("kernel") else { return };
    line(out, &format!("  kernel:  it {}", clean(&text(kernel, "/fate"))));
    for one in items(kernel, "/steps") {
        let [place, rule, result] = ["/place", "/rule", "/result"].map(|at| clean(&text(one, at)));
        let tone = if flag(one, "/odd", false) { Tone::Bad } else { Tone::Faint };
        let rule = if rule.is_empty() { rule } else { format!("  {rule}") };
        line(out, &style.paint(tone, &format!("    {place}{rule}  ⇒ {result}")));
    }
    if let Some(difference) = kernel.get("difference") {
        let [place, rule, desired, found] =
            ["/place", "/rule", "/desired", "/kernel"].map(|at| clean(&text(difference, at)));
        let at = if rule.is_empty() { place } else { format!("{place}: {rule}") };
        line(out, &style.paint(Tone::Bad, &format!("  first difference at {at}")));
        line(out, &format!("    desired: it {desired}\n    kernel:  it {found}"));
    }
}

fn step(out: &mut String, step: &Value, style: Style) {
    let (mark, tone) = match text(step, "/state").as_str() {
        "Fine" => ("ok", Tone::Good),
        "Broken" => ("BROKEN", Tone::Bad),
        _ => ("?", Tone::Waiting),
    };
    let mark = style.paint(tone, &format!("{mark:<6}"));
    line(out, &format!("  {mark}  {:<18}  {}", clean(&text(step, "/about")), clean(&text(step, "/outcome"))));
    let more = [text(step, "/why"), text(step, "/hint")];
    let [why, hint] = more.map(|more| clean(&more));
    if !why.is_empty() {
        line(out, &format!("{:30}{why}", ""));
    }
    if !hint.is_empty() {
        line(out, &format!("{:30}hint: {hint}", ""));
    }
}

fn candidates(out: &mut String, path: &Value, style: Style) {
    let mut table = Table::new(vec!["    ENDPOINT", "NODE", "ZONE", "WEIGHT", "USED", "WHY"]);
    let mut is_empty = true;
    for one in items(path, "/candidates") {
        is_empty = false;
        let is_used = flag(one, "/used", false);
        let at = socket(&text(one, "/address"), &text(one, "/port"));
        table.push(vec![
            format!("    {at}").into(),
            text(one, "/node").into(),
            text(one, "/zone").into(),
            text(one, "/weight").into(),
            Cell::toned(if is_used { Tone::Good } else { Tone::Faint }, if is_used { "yes" } else { "no" }),
            text(one, "/why").into(),
        ]);
    }
    if !is_empty {
        out.push_str(&table.render(style));
    }
    let omitted = number(path, "/candidatesOmitted");
    if omitted > 0 {
        line(out, &format!("    and {omitted} more endpoints"));
    }
}

fn line(out: &mut String, text: &str) {
    out.write_fmt(format_args!("{text}\n")).expect("writing into a String does not fail");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f166_the_first_broken_step_comes_first_and_every_step_names_what_does_it() {
        let step = |about: &str, state: &str, outcome: &str| json!({ "about": about, "state": state, "outcome": outcome });
        let kernel = json!({
            "fate": "is dropped without an answer",
            "steps": [{ "place": "map inet tidegate endpoints4", "rule": "10.96.0.10 . 6 . 80 . 0", "result": "dropped", "odd": true }],
            "difference": { "place": "map inet tidegate endpoints4", "rule": "", "desired": "goes to A", "kernel": "is dropped" },
        });
        let path = json!({
            "node": "n1", "mode": "nftables", "chosen": "it was asked for", "fate": "goes to A",
            "packet": { "source": "10.1.0.9", "destination": "10.96.0.10", "protocol": "TCP", "port": 80 },
            "steps": [step("Frontend", "Fine", "it meets port 80"), step("Kernel", "Broken", "the kernel differs")],
            "candidates": [{ "address": "10.1.1.2", "port": 80, "weight": 1, "used": true, "why": "ready; gets 1 of 1" }],
            "kernel": kernel,
        });
        let answer = json!({
            "subject": "10.1.0.9 -> 10.96.0.10:80/tcp", "summary": "on n1: the kernel differs", "broken": {},
            "steps": [step("Destination", "Fine", "10.96.0.10 is the cluster IP of Service default/web")],
            "paths": [path], "pathsOmitted": 2,
        });
        let expected = "\
10.1.0.9 -> 10.96.0.10:80/tcp
on n1: the kernel differs

  ok      Destination         10.96.0.10 is the cluster IP of Service default/web

n1 (nftables): 10.1.0.9 -> 10.96.0.10:80/tcp
  this node because it was asked for
  ok      Frontend            it meets port 80
  BROKEN  Kernel              the kernel differs
    ENDPOINT      NODE     ZONE     WEIGHT   USED   WHY
    10.1.1.2:80   <none>   <none>   1        yes    ready; gets 1 of 1
  desired: it goes to A
  kernel:  it is dropped without an answer
    map inet tidegate endpoints4  10.96.0.10 . 6 . 80 . 0  ⇒ dropped
  first difference at map inet tidegate endpoints4
    desired: it goes to A
    kernel:  it is dropped

2 more ways are left out; --at NODE shows those of one node
";
        assert_eq!(explanation(&answer, Style::PLAIN), expected);
    }
}
