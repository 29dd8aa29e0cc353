//! Writes a signed report.

use serde::Serialize;

use super::chain::{START, Seal, Sealer, append};
use super::lines::{AuthorityLine, CLIENT, CertificateLine, Header, PARTICIPATION, ROUND, SignatureLine, TENSOR};
use super::signature::{SignError, Signer};
use crate::columns::{Table, Values};
use crate::report::Report;

/// The signed report as text: every line ends in a line end. The same report gives the same bytes up to an ECDSA
/// signature, which is another each time.
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
        // The closing brace follows the seal.
        self.content.pop();
        self.end();
        Ok(())
    }

    /// Appends a table, a line for each of its lines.
    fn table(&mut self, kind: &str, table: &Table) -> Result<(), SignError> {
        for line in 0..table.len() {
            self.content.clear();
            self.content.extend_from_slice(b"{\"kind\":");
            put(&mut self.content, &kind)?;
            for column in &table.columns {
                self.content.push(b',');
                put(&mut self.content, &column.name)?;
                self.content.push(b':');
                match &column.values {
                    Values::Integers(values) => put(&mut self.content, &values.get(line)),
                    Values::Numbers(values) => put(&mut self.content, &values.get(line)),
                    Values::Flags(values) => put(&mut self.content, &values.get(line)),
                    Values::Texts(values) => put(&mut self.content, &values.get(line)),
                }?;
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
