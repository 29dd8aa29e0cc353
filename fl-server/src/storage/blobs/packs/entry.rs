//! The bytes of a pack: a header of eight bytes, then entries, one after another. An entry is a header of 44 bytes and the bytes of
//! a blob.
//!
//! | bytes | of an entry's header |
//! |---|---|
//! | 4 | `FLPK` |
//! | 4 | length of the blob, little-endian |
//! | 32 | digest of the blob |
//! | 4 | CRC-32C of the 40 bytes before, little-endian |
//!
//! The digest protects the blob, and the checksum the header. Behind a damaged header, the scan goes on at the next
//! intact one whose blob has its digest: a client chooses the bytes of a blob, and may put a header into them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use fl_compress::Digest;
use fl_compress::wire::{self, Writer};

/// The first bytes of a pack, for whoever looks at the file.
pub(super) const START: &[u8; 8] = b"fl-pack\n";
const MAGIC: [u8; 4] = *b"FLPK";
pub(super) const HEADER: usize = 44;
/// Bytes that a search for an intact header reads at once.
const WINDOW: usize = 64 * 1024;

/// Where a blob is in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: u64,
    pub(super) len: u32,
}

/// The header of an entry.
pub(super) fn header(digest: &Digest, len: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    let mut writer = Writer::new(&mut bytes);
    writer.bytes(&MAGIC);
    writer.u32(len);
    writer.bytes(&digest.0);
    wire::seal(0, &mut bytes);
    bytes
}

/// The digest and the length in an intact header of an entry that ends before `end`. `at`: the offset of the header.
fn parsed(header: &[u8], at: u64, end: u64) -> Option<(Digest, Span)> {
    let mut reader = wire::checked(header).ok()?;
    let magic: [u8; 4] = reader.array("magic").ok()?;
    let len = reader.u32("len").ok()?;
    let digest = Digest(reader.array("digest").ok()?);
    let at = at + HEADER as u64;
    (magic == MAGIC && at + u64::from(len) <= end).then_some((digest, Span { at, len }))
}

/// The complete entries of a pack, in order. A process may append to it meanwhile.
pub(super) fn scan(file: &File) -> io::Result<Vec<(Digest, Span)>> {
    let end = file.metadata()?.len();
    let mut entries = Vec::new();
    let mut next = START.len() as u64;
    let mut header = [0; HEADER];
    while next + HEADER as u64 <= end {
        file.read_exact_at(&mut header, next)?;
        let found = match parsed(&header, next, end) {
            None => search(file, next + 1, end)?,
            found => found,
        };
        let Some((digest, span)) = found else { break };
        next = span.at + u64::from(span.len);
        entries.push((digest, span));
    }
    Ok(entries)
}

/// The first intact entry that begins at the offset `from` or later.
fn search(file: &File, mut from: u64, end: u64) -> io::Result<Option<(Digest, Span)>> {
    let mut window = vec![0; WINDOW];
    while from + HEADER as u64 <= end {
        let len = (end - from).min(WINDOW as u64) as usize;
        file.read_exact_at(&mut window[..len], from)?;
        let headers = window[..len].windows(HEADER).zip(from..);
        let begun = headers.filter(|(header, _)| header.starts_with(&MAGIC));
        for (digest, span) in begun.filter_map(|(header, at)| parsed(header, at, end)) {
            // A client chose the bytes of a blob: there may be headers in them, and they bound the work.
            if u64::from(span.len) <= LONGEST && is_of(file, &digest, span)? {
                return Ok(Some((digest, span)));
            }
        }
        from += (len - (HEADER - 1)) as u64;
    }
    Ok(None)
}

/// Longest blob of a pack, in bytes.
pub(crate) const LONGEST: u64 = 1024 * 1024;

/// Whether the bytes of an entry have its digest.
fn is_of(file: &File, digest: &Digest, span: Span) -> io::Result<bool> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; WINDOW];
    let mut at = span.at;
    let end = span.at + u64::from(span.len);
    while at < end {
        let len = (end - at).min(WINDOW as u64) as usize;
        file.read_exact_at(&mut piece[..len], at)?;
        hasher.update(&piece[..len]);
        at += len as u64;
    }
    Ok(*hasher.finalize().as_bytes() == digest.0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn pack(blobs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = START.to_vec();
        for blob in blobs {
            bytes.extend(header(&Digest::of(blob), blob.len() as u32));
            bytes.extend(blob);
        }
        bytes
    }

    fn scanned(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let entries = scan(&file).unwrap().into_iter();
        let blob = |(digest, span): (Digest, Span)| {
            let blob = &bytes[span.at as usize..][..span.len as usize];
            (Digest::of(blob) == digest).then(|| blob.to_vec())
        };
        entries.filter_map(blob).collect()
    }

    #[test]
    fn an_entry_has_these_bytes() {
        let header = header(&Digest([7; 32]), 300);
        assert_eq!(header.len(), HEADER);
        assert_eq!(header[..8], *b"FLPK\x2c\x01\0\0");
        assert_eq!(header[8..40], [7; 32]);
        assert_eq!(header[40..], [7, 68, 196, 177]);
    }

    fn blobs() -> impl Strategy<Value = Vec<Vec<u8>>> {
        // Of few letters, so that they are like headers.
        let byte = prop::sample::select(b"FLPK\0".to_vec());
        let blob = prop::collection::vec(byte, 0..200);
        prop::collection::btree_set(blob, 1..6).prop_map(|blobs| blobs.into_iter().collect())
    }

    /// A blob that a client chose: it holds the header of an entry that reaches over the blobs behind it.
    #[test]
    fn a_damaged_header_of_a_blob_with_a_header_in_it_costs_at_most_that_blob() {
        let others: Vec<Vec<u8>> = (0..5u8).map(|at| vec![at; 100]).collect();
        let mut evil = vec![1; 20];
        evil.extend(header(&Digest::of(b"any"), 5 * 144));
        let blobs: Vec<Vec<u8>> = std::iter::once(evil).chain(others.clone()).collect();
        let mut bytes = pack(&blobs);
        bytes[10] ^= 1;
        assert_eq!(scanned(&bytes), others);
    }

    /// A pack that was cut off in the blob of a client that chose its bytes.
    #[test]
    fn a_pack_that_was_cut_off_in_a_blob_with_a_header_in_it_names_no_other_blob() {
        let mut evil = header(&Digest::of(b"the model update that all clients know"), 10);
        evil.extend([0; 1000]);
        let bytes = pack(&[b"one".to_vec(), evil]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes[..bytes.len() - 500]).unwrap();
        let names: Vec<Digest> = scan(&file).unwrap().into_iter().map(|(digest, _)| digest).collect();
        assert_eq!(names, [Digest::of(b"one")]);
    }

    proptest! {
        #[test]
        fn a_pack_that_was_cut_off_has_the_blobs_before(blobs in blobs(), cut in any::<prop::sample::Index>()) {
            let bytes = pack(&blobs);
            prop_assert_eq!(&scanned(&bytes), &blobs);
            let cut = cut.index(bytes.len());
            let complete = (0..blobs.len()).take_while(|&n| pack(&blobs[..=n]).len() <= cut).count();
            prop_assert_eq!(scanned(&bytes[..cut]), &blobs[..complete]);
        }

        #[test]
        fn a_flipped_bit_costs_at_most_one_blob(blobs in blobs(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
            let mut bytes = pack(&blobs);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            let found = scanned(&bytes);
            let lost = blobs.iter().filter(|blob| !found.contains(blob)).count();
            prop_assert!(lost <= 1 && found.iter().all(|blob| blobs.contains(blob)));
        }
    }
}
