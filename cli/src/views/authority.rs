//! Output of `authority`. Pure function.

use serde_json::Value;

use crate::{
    terminal::clean,
    views::typed::{certificates::AuthorityInfo, decode, word},
};

/// Renders the output of `authority show`.
#[must_use]
pub fn authority(answer: &Value) -> String {
    let AuthorityInfo { current, former, nodes_current, nodes_former, nodes_to_renew } =
        decode(answer).unwrap_or_default();
    let mut text = format!("Authority  {}\n  expires  {}\n", current.fingerprint, word(&current.expires));
    match former {
        None => text.push_str(&format!("  nodes    {nodes_current}\n")),
        Some(former) => {
            text.push_str(&format!("  nodes    {nodes_current} have renewed their certificates\n"));
            text.push_str(&format!(
                "Former     {}\n  trusted  until {}",
                former.fingerprint,
                word(&former.trusted_until)
            ));
            text.push_str(&format!(", rotated {}\n", word(&former.rotated)));
        }
    }
    if nodes_former > 0 {
        let unlisted = nodes_former.saturating_sub(u64::try_from(nodes_to_renew.len()).unwrap_or_default());
        let more = if unlisted > 0 { format!(" and {unlisted} more") } else { String::new() };
        text.push_str(&format!(
            "  nodes    {nodes_former} have not renewed their certificates: {}{more}\n",
            nodes_to_renew.join(", ")
        ));
    }
    text.lines().map(|line| format!("{}\n", clean(line))).collect()
}
