//! Human-readable output of `explain`. Pure functions.

use std::{collections::BTreeSet, fmt::Write};

use model::{
    views::explain::{CandidateEndpoint, Difference, Explanation, KernelSide, Path, Step, StepState},
    wire::trace::TraceStep,
};
use serde_json::Value;

use crate::{
    terminal::{
        clean,
        style::{Style, Tone},
        table::{Cell, Table},
    },
    views::columns::socket,
    views::typed::{UNREADABLE, decode, decode_or_default, items, rows, word},
};

/// Renders an explanation: the summary, the steps common to all nodes, then the
/// path through each node.
#[must_use]
pub fn explanation(explanation: &Value, style: Style) -> String {
    let whole: Explanation = decode_or_default(Some(explanation));
    let mut out = String::new();
    line(&mut out, &style.paint(Tone::Title, &clean(&whole.subject)));
    // The presence alone, because this version may be unable to decode the broken step.
    let tone = if explanation.get("broken").is_some() { Tone::Bad } else { Tone::Good };
    line(&mut out, &style.paint(tone, &clean(&whole.summary)));
    if let Some(text) = not_checked(&whole) {
        line(&mut out, &style.paint(Tone::Waiting, &text));
    }
    if !items(explanation, "/steps").is_empty() {
        line(&mut out, "");
    }
    steps(&mut out, explanation, style);
    for one in items(explanation, "/paths") {
        match decode::<Path>(one) {
            Some(path) => self::path(&mut out, &path, one, style),
            None => line(&mut out, &format!("\n{UNREADABLE}")),
        }
    }
    if whole.paths_omitted > 0 {
        let omitted = whole.paths_omitted;
        line(&mut out, &format!("\n{omitted} more ways are left out; --at NODE shows those of one node"));
    }
    out
}

/// Returns a sentence about the endpoints that can receive the packets although nobody checks them, or `None` if there
/// are none.
fn not_checked(explanation: &Explanation) -> Option<String> {
    let candidates = explanation.paths.iter().flat_map(|path| &path.candidates);
    let unchecked: BTreeSet<_> =
        candidates.filter(|one| one.not_checked).map(|one| (one.address, one.port)).collect();
    match unchecked.len() {
        0 => None,
        1 => Some("one endpoint is not checked: nothing shows that it answers".to_owned()),
        count => Some(format!("{count} endpoints are not checked: nothing shows that they answer")),
    }
}

fn path(out: &mut String, path: &Path, whole: &Value, style: Style) {
    let protocol = path.packet.protocol.as_str().to_lowercase();
    let to = socket(&path.packet.destination.to_string(), &path.packet.port.to_string());
    let packet = format!("{} -> {to}/{protocol}", path.packet.source);
    let mode = path.mode.map(|mode| format!(" ({})", mode.as_str())).unwrap_or_default();
    let title = style.paint(Tone::Title, &clean(&format!("{}{mode}: {packet}", path.node)));
    line(out, &format!("\n{title}"));
    line(out, &style.paint(Tone::Faint, &format!("  this node because {}", clean(&path.chosen))));
    steps(out, whole, style);
    candidates(out, path, whole, style);
    line(out, &format!("  desired: it {}", clean(&path.fate)));
    if let Some(kernel) = &path.kernel {
        self::kernel(out, kernel, style);
    }
}

fn kernel(out: &mut String, kernel: &KernelSide, style: Style) {
    line(out, &format!("  kernel:  it {}", clean(&kernel.fate)));
    for TraceStep { place, rule, result, odd } in &kernel.steps {
        let tone = if *odd { Tone::Bad } else { Tone::Faint };
        let rule = if rule.is_empty() { String::new() } else { format!("  {}", clean(rule)) };
        line(out, &style.paint(tone, &format!("    {}{rule}  ⇒ {}", clean(place), clean(result))));
    }
    if let Some(Difference { place, rule, desired, kernel }) = &kernel.difference {
        let at = if rule.is_empty() { place.clone() } else { format!("{place}: {rule}") };
        line(out, &style.paint(Tone::Bad, &format!("  first difference at {}", clean(&at))));
        line(out, &format!("    desired: it {}\n    kernel:  it {}", clean(desired), clean(kernel)));
    }
}

/// Adds the steps in `whole`, which is an explanation or the path through one node.
fn steps(out: &mut String, whole: &Value, style: Style) {
    for one in rows::<Step>(whole, "/steps") {
        match one {
            Some(step) => self::step(out, &step, style),
            None => line(out, &format!("  {:<6}  {UNREADABLE}", "?")),
        }
    }
}

fn step(out: &mut String, step: &Step, style: Style) {
    let (mark, tone) = match step.state {
        StepState::Fine => ("ok", Tone::Good),
        StepState::Broken => ("BROKEN", Tone::Bad),
        StepState::Unknown => ("?", Tone::Waiting),
        StepState::Pending => ("wait", Tone::Waiting),
    };
    let mark = style.paint(tone, &format!("{mark:<6}"));
    line(out, &format!("  {mark}  {:<18}  {}", word(&step.about), clean(&step.outcome)));
    if !step.why.is_empty() {
        line(out, &format!("{:30}{}", "", clean(&step.why)));
    }
    if let Some(hint) = step.hint.as_ref().filter(|hint| !hint.is_empty()) {
        line(out, &format!("{:30}hint: {}", "", clean(hint)));
    }
}

fn candidates(out: &mut String, path: &Path, whole: &Value, style: Style) {
    let mut table = Table::new(vec!["    ENDPOINT", "NODE", "ZONE", "WEIGHT", "USED", "WHY"]);
    for one in rows::<CandidateEndpoint>(whole, "/candidates") {
        let Some(one) = one else {
            table.push_unreadable();
            continue;
        };
        let at = socket(&one.address.to_string(), &one.port.to_string());
        let tone = if one.used { Tone::Good } else { Tone::Faint };
        table.push(vec![
            format!("    {at}").into(),
            word(&one.node).into(),
            word(&one.zone).into(),
            word(&one.weight).into(),
            Cell::toned(tone, if one.used { "yes" } else { "no" }),
            one.why.into(),
        ]);
    }
    if !table.is_empty() {
        out.push_str(&table.render(style));
    }
    if path.candidates_omitted > 0 {
        line(out, &format!("    and {} more endpoints", path.candidates_omitted));
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
            "node": "n1", "mode": "nftables", "chosen": "it was asked for", "fate": "goes to A", "ends": [],
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
