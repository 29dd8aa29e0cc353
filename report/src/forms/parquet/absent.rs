//! Refuses Parquet in a program that is built without the feature `parquet`.

use crate::error::Error;
use crate::report::run::Run;
use crate::table::Table;

/// Writes nothing.
///
/// # Errors
/// Always `Form`, which says how to build a program that can write Parquet.
pub fn parquet(_: &Run, _: &str, _: &Table) -> Result<Vec<u8>, Error> {
    let why = "this program was built without Parquet; build it with `--features parquet`";
    Err(Error::form("Parquet")(why))
}
