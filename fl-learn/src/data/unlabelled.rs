//! Splits of examples without classes: texts and numbers to predict.

use super::error::Error;
use super::split::{Split, assigned, check_share_of, drawn, slice};

/// As [`share`](super::split::share), for `len` examples without classes. `is_text`: with [`Split::Iid`], each client gets one
/// stretch of the text in place of examples drawn from all of it.
pub(super) fn share_unlabelled(
    (len, is_text): (usize, bool),
    split: &Split,
    client: u32,
    clients: u32,
    seed: u64,
) -> Result<Vec<u32>, Error> {
    check_share_of(len, client, clients)?;
    split.check()?;
    split.expect_without_classes(is_text)?;
    let mut mine = match split {
        Split::Iid if is_text => slice(len, client, clients).map(|at| at as u32).collect(),
        Split::Iid => drawn(len, client, clients, seed),
        Split::File(path) => assigned(path, len, client, clients)?,
        // Refused above.
        Split::Dirichlet(_) | Split::PlainDirichlet(_) | Split::InnerDirichlet(_) | Split::ByLabel(_) => Vec::new(),
    };
    mine.sort_unstable();
    Ok(mine)
}

impl Split {
    /// Succeeds if examples without classes, which a text has with `is_text`, can be split like this.
    pub(super) fn expect_without_classes(&self, is_text: bool) -> Result<(), Error> {
        if matches!(self, Self::Iid | Self::File(_)) {
            return Ok(());
        }
        let what = if is_text { "a text has" } else { "these examples have" };
        let why = format!("shares out classes, but {what} none; use \"iid\" or {{ file = \"clients.csv\" }}");
        Err(Error::config("split", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_without_classes_are_drawn_and_texts_are_cut() {
        let parts = |is_text| -> Vec<Vec<u32>> {
            let part = |client| share_unlabelled((20, is_text), &Split::Iid, client, 3, 5).unwrap();
            (0..3).map(part).collect()
        };
        assert_eq!(parts(true)[1], (6..13).collect::<Vec<_>>());
        let mut all = parts(false).concat();
        assert_ne!(all, (0..20).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        for split in [
            Split::Dirichlet(0.5),
            Split::PlainDirichlet(0.5),
            Split::InnerDirichlet(0.5),
            Split::ByLabel(2),
        ] {
            let error = share_unlabelled((20, true), &split, 0, 3, 5).unwrap_err().to_string();
            assert!(
                error.contains("`split` shares out classes, but a text has none"),
                "{error}"
            );
        }
        assert!(share_unlabelled((2, true), &Split::Iid, 0, 3, 5).is_err());
    }
}
