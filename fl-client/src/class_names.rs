//! What the numbers in labels and texts mean. It must be the same on all clients of a run.

use fl_compress::Digest;

/// The names of a model's classes, or of its tokens, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassNames {
    /// Short digest of all names.
    pub digest: u64,
    /// The first names, for a person.
    pub shown: String,
}

/// Names that are shown, and characters of each.
const SHOWN: (usize, usize) = (16, 32);

impl ClassNames {
    /// The `names`, class 0 first.
    pub fn of(names: &[String]) -> Self {
        let mut shown: Vec<String> = names
            .iter()
            .take(SHOWN.0)
            .map(|name| format!("`{}`", name.escape_debug().take(SHOWN.1).collect::<String>()))
            .collect();
        if names.len() > SHOWN.0 {
            shown.push(format!("and {} more", names.len() - SHOWN.0));
        }
        Self {
            digest: Digest::of(names.join("\n").as_bytes()).short(),
            shown: shown.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_another_order_or_with_another_text_have_another_digest() {
        let of = |names: &[&str]| ClassNames::of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        let own = of(&["cat", "dog"]);
        assert_eq!(own, of(&["cat", "dog"]));
        for other in [&["dog", "cat"][..], &["cat", "fox"], &["cat"], &["cat", "dog", ""]] {
            assert_ne!(own.digest, of(other).digest, "{other:?}");
        }
        assert_eq!(own.shown, "`cat`, `dog`");
        let long = "x".repeat(40);
        let many: Vec<&str> = std::iter::once(long.as_str())
            .chain(std::iter::repeat_n("a\n", 29))
            .collect();
        let shown = of(&many).shown;
        assert!(
            shown.starts_with(&format!("`{}`, `a\\n`", "x".repeat(32))) && shown.ends_with(", and 14 more"),
            "{shown}"
        );
    }
}
