//! Parser for the variants of an enum in a Rust source file, with their doc comments.

/// Variant of an enum in a Rust source file, with its doc comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Name of the variant in the source file.
    pub name: String,
    /// Doc comment of the variant, joined into one line.
    pub meaning: String,
}

/// Returns the variants of the enum `name` in a Rust source text formatted by rustfmt, in order of declaration.
///
/// # Errors
/// Returns an error if the source does not contain the enum, or if a variant has no doc comment.
pub fn of(source: &str, name: &str) -> Result<Vec<Variant>, String> {
    let heading = format!("enum {name} {{");
    let mut lines = source.lines().skip_while(|line| !line.ends_with(&heading));
    lines.next().ok_or_else(|| format!("the source has no enum {name}"))?;
    let (mut variants, mut comment) = (Vec::new(), Vec::new());
    for line in lines.take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line.starts_with(|first: char| first.is_ascii_uppercase()) {
            let end = line.find(|other: char| !other.is_ascii_alphanumeric()).unwrap_or(line.len());
            let name = line.get(..end).unwrap_or(line).to_owned();
            if comment.is_empty() {
                return Err(format!("{name} has no doc comment"));
            }
            variants.push(Variant { name, meaning: std::mem::take(&mut comment).join(" ") });
        }
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "/// Tide.\npub(crate) enum Tide {\n    /// Water\n    /// falls.\n    #[default]\n    Ebb,\n    /// \
                          Water rises.\n    Flood,\n}\n\nenum Other {\n}\n";

    #[test]
    fn variants_have_their_doc_comments() {
        let found =
            of(SOURCE, "Tide").map(|found| found.into_iter().map(|one| (one.name, one.meaning)).collect());
        let wanted = [("Ebb", "Water falls."), ("Flood", "Water rises.")];
        let wanted: Vec<_> =
            wanted.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, Ok::<Vec<_>, String>(wanted));
    }

    #[test]
    fn a_missing_enum_and_a_missing_comment_are_errors() {
        assert!(of(SOURCE, "Moon").is_err());
        assert!(of("enum Tide {\n    Ebb,\n}\n", "Tide").is_err());
    }
}
