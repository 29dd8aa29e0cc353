//! Writes a signed report.

use serde::Serialize;

use crate::report::Report;
use crate::signed::chain::{START, Seal, Sealer, append};
use crate::signed::format::{CLIENT, PARTICIPATION, ROUND, TENSOR};
use crate::signed::lines::{AuthorityLine, CertificateLine, Header, SignatureLine};
use crate::signed::signer::{SignError, Signer};
use crate::table::Table;

/// Writes a signed report as text, every line with its line end. The same report gives the same bytes except for an ECDSA
/// signature, which is random.
///
/// # Errors
/// `Key` if signing fails, `Json` if a line cannot be written.
pub fn write(report: &Report, signer: &Signer) -> Result<String, SignError> {
    let mut out = Lines {
        bytes: Vec::new(),
        content: Vec::new(),
        sealer: Sealer::new(),
        last: START,
    };
    out.json(&Header::of(report))?;
    out.table(ROUND, &Table::of(report.rounds.iter()))?;
    out.table(CLIENT, &Table::of(report.clients.iter()))?;
    out.table(PARTICIPATION, &Table::of(report.participations.iter()))?;
    out.table(TENSOR, &Table::of(report.tensors.iter()))?;
    out.json(&AuthorityLine {
        kind: "authority".into(),
        authority: signer.authority().into(),
    })?;
    out.json(&CertificateLine {
        kind: "certificate".into(),
        certificate: signer.certificate().into(),
    })?;
    let (algorithm, signature) = signer.sign(&out.last)?;
    out.json(&SignatureLine {
        kind: "signature".into(),
        algorithm: algorithm.into(),
        signature: signature.into(),
    })?;
    String::from_utf8(out.bytes).map_err(|e| SignError::Json(e.to_string()))
}

struct Lines {
    bytes: Vec<u8>,
    /// Scratch for one line.
    content: Vec<u8>,
    sealer: Sealer,
    last: Seal,
}

impl Lines {
    /// Appends an object as a line.
    fn json(&mut self, object: &impl Serialize) -> Result<(), SignError> {
        self.content.clear();
        put(&mut self.content, object)?;
        // The seal comes before the closing brace.
        self.content.pop();
        self.end();
        Ok(())
    }

    /// Appends the lines of a table.
    fn table(&mut self, kind: &str, table: &Table) -> Result<(), SignError> {
        for line in 0..table.len() {
            self.content.clear();
            self.content.extend_from_slice(b"{\"kind\":");
            put(&mut self.content, &kind)?;
            for (column, value) in table.row(line) {
                self.content.push(b',');
                put(&mut self.content, &column.name)?;
                self.content.push(b':');
                put(&mut self.content, &value)?;
            }
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.last = self.sealer.seal(&self.last, &self.content);
        append(&mut self.bytes, &self.content, &self.last);
    }
}

fn put(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), SignError> {
    serde_json::to_writer(out, value).map_err(|e| SignError::Json(e.to_string()))
}
