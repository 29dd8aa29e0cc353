//! A split that is given by a file: one row for each example, with the client that has it.

use std::path::Path;

use crate::data::csv_file::CsvFile;
use crate::data::error::Error;

const RULE: &str = "each example needs one row; leave `client` empty if no client shall have it";

/// Positions of the examples of `client`, of a set of `len` examples, in the file's order. The file is CSV with the columns
/// `index` and `client`; other columns are ignored. An example with an empty `client` belongs to nobody.
pub(crate) fn read(path: &Path, len: usize, client: u32, clients: u32) -> Result<Vec<u32>, Error> {
    let mut file = CsvFile::open(path, b',', "`split.file` names it")?;
    file.expect_delimiter(|_| "write the file with `,`".to_owned())?;
    let index = file.column("index")?;
    let owner = file.column("client")?;
    let mut seen = vec![false; len];
    let mut mine = Vec::new();
    let faults = file.each_row(|row, _| {
        let at: u32 = row.integer(index)?;
        match seen.get_mut(at as usize) {
            None => {
                let what = format!("index {at}, but the set has {len} examples, counted from 0");
                return Err(row.wrong(what, RULE));
            }
            Some(true) => return Err(row.wrong(format!("index {at} occurs a second time"), RULE)),
            Some(seen) => *seen = true,
        }
        if row.text(owner).is_empty() {
            return Ok(());
        }
        let owner: u32 = row.integer(owner)?;
        if owner >= clients {
            let what = format!("client {owner}, but there are `clients` = {clients}, counted from 0");
            return Err(row.wrong(what, "correct the row, or raise `clients`"));
        }
        if owner == client {
            mine.push(at);
        }
        Ok(())
    })?;
    faults.into_result(&file.path)?;
    if let Some(at) = seen.iter().position(|seen| !seen) {
        return Err(Error::malformed(path, format!("has no row for index {at}; {RULE}")));
    }
    if mine.is_empty() {
        return Err(Error::malformed(path, format!("gives no example to client {client}")));
    }
    Ok(mine)
}
