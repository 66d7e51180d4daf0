//! Parser for the commands in a section of a documentation page.

/// Command in the README, and the user (root or not) who must run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    /// True if the command is run as root on a machine of the cluster.
    pub(crate) is_root: bool,
    /// Text of the command with its continuation lines.
    pub(crate) text: String,
}

/// Returns the commands in the `console` code blocks below the heading `heading` of a page.
pub(crate) fn commands(page: &str, heading: &str) -> Vec<Typed> {
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let (mut found, mut is_console): (Vec<Typed>, bool) = (Vec::new(), false);
    for line in section {
        if let Some(word) = line.strip_prefix("```") {
            is_console = word == "console";
            continue;
        }
        let typed = [("# ", true), ("$ ", false)].into_iter();
        let mut typed = typed.filter_map(|(prompt, is_root)| Some((line.strip_prefix(prompt)?, is_root)));
        let continued = found.last_mut().filter(|last| last.text.ends_with('\\'));
        match (is_console, continued, typed.next()) {
            (true, Some(last), _) => {
                last.text += "\n";
                last.text += line;
            }
            (true, None, Some((text, is_root))) => found.push(Typed { is_root, text: text.to_owned() }),
            (true, None, None) | (false, _, _) => {}
        }
    }
    found
}

#[test]
fn commands_are_found_with_their_continued_lines_and_in_their_section_only() {
    let page = "```console\n$ no\n```\n## A\n```console\n# one \\\n    two\nsaid\n```\n```\n$ no\n```\n```console\n$ three\n```\n## B\n\
                ```console\n$ no\n```\n";
    let typed = |is_root, text: &str| Typed { is_root, text: text.to_owned() };
    assert_eq!(commands(page, "## A"), [typed(true, "one \\\n    two"), typed(false, "three")]);
    assert_eq!(commands(page, "## C"), []);
}
