//! The ledger of a run, read from its store.

use crate::accounting::ledger::row::Row;
use crate::storage::record::RecordError;
use crate::storage::store::{RunStore, StoreError};

/// The rows of a run's ledger, in the order of writing.
///
/// # Errors
/// Each item: those of the store, and `Value` for a row that cannot be read.
pub(crate) fn stored_rows(run: &RunStore) -> impl Iterator<Item = Result<Row, StoreError>> {
    let name = run.clone();
    run.rows()
        .zip(0..)
        .map(move |(row, number)| parse(&name, number, &row?))
}

/// The tail of a run's ledger: the bytes of the time after the last row.
pub(crate) fn stored_tail(run: &RunStore) -> Result<Vec<Row>, StoreError> {
    let rows = run.tail()?;
    let rows = rows.iter().zip(run.rows_len()..);
    rows.map(|(row, number)| parse(run, number, row)).collect()
}

fn parse(run: &RunStore, number: u64, bytes: &[u8]) -> Result<Row, StoreError> {
    let why = match bytes.first() {
        Some(&theirs) if theirs != Row::VERSION => RecordError::Version {
            theirs,
            ours: Row::VERSION,
        },
        _ => RecordError::Bytes(fl_compress::Error::Corrupt {
            what: "ledger row".to_owned(),
            offset: 0,
        }),
    };
    Row::from_bytes(bytes).ok_or_else(|| StoreError::Value {
        table: "ledger row",
        number: number.to_string(),
        run: run.name().clone(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::Disk;
    use crate::storage::store::Store;

    #[test]
    fn a_ledger_row_of_another_version_is_refused_with_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Disk::default()).unwrap();
        let run = store.run(&"digits".parse().unwrap()).unwrap();
        let newer = vec![Row::VERSION + 1, 0];
        run.append(&[], &[newer]).unwrap();
        let error = stored_rows(&run).next().unwrap().unwrap_err();
        assert!(error.is_corruption());
        let text = error.to_string();
        let (newer, own) = (Row::VERSION + 1, Row::VERSION);
        assert!(
            text.contains(&format!("version {newer}; this program reads version {own}")),
            "{text}"
        );
    }
}
