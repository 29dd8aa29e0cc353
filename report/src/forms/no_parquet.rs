//! Stands for `parquet` in a program that is built without that feature.

use crate::columns::Table;
use crate::error::Error;
use crate::report::Run;

/// Writes nothing.
///
/// # Errors
/// Always `Form`, which says how to build a program that can.
pub fn parquet(_: &Run, _: &str, _: &Table) -> Result<Vec<u8>, Error> {
    let why = "this program was built without Parquet; build it with `--features parquet`";
    Err(Error::form("Parquet")(why.to_owned()))
}
