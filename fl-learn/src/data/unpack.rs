//! Unpacks known members of an archive into one folder. A member is identified by its path and length and gets a name of ours:
//! a name inside an archive never becomes a path on disk.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use super::error::Error;

/// Bytes that an archive may contain besides its known members: headers, padding, a readme.
const BESIDES: u64 = 1 << 20;

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Path inside the archive.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Member {
    /// The member at `path`, `bytes` long.
    pub fn new(path: impl Into<String>, bytes: u64) -> Self {
        Self {
            path: path.into(),
            bytes,
        }
    }

    /// File name in the target folder.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Whether all `members` are in `dir` with the right lengths.
pub(super) fn unpacked(members: &[Member], dir: &Path) -> bool {
    members.iter().all(|member| {
        let found = fs::metadata(dir.join(member.name()));
        found.is_ok_and(|found| found.is_file() && found.len() == member.bytes)
    })
}

/// Unpacks `members` of the tar.gz `archive` into `dir`: all of them to side files first, then renamed.
///
/// # Errors
/// `Malformed` if a member is missing, duplicate, not a plain file or of another length, or the archive is damaged; `Io` if the
/// archive cannot be read or `dir` cannot be written. No side file remains then.
pub(super) fn unpack(archive: &Path, members: &[Member], dir: &Path) -> Result<(), Error> {
    let side = |member: &Member| dir.join(format!("{}.part", member.name()));
    let done = write(archive, members, &side).and_then(|()| {
        members.iter().try_for_each(|member| {
            let path = dir.join(member.name());
            fs::rename(side(member), &path).map_err(|error| Error::io(&path, &error))
        })
    });
    if done.is_err() {
        // Side files that were not written do not exist.
        members.iter().for_each(|member| drop(fs::remove_file(side(member))));
    }
    done
}

fn write(archive: &Path, members: &[Member], side: &impl Fn(&Member) -> PathBuf) -> Result<(), Error> {
    let damaged = |error: io::Error| Error::malformed(archive, format!("cannot be unpacked: {error}"));
    let file = File::open(archive).map_err(|error| Error::io(archive, &error))?;
    let most = members.iter().map(|member| member.bytes).sum::<u64>() + BESIDES;
    let mut tar = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(most));
    let mut missing: Vec<&Member> = members.iter().collect();
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let Some(member) = members.iter().find(|m| *entry.path_bytes() == *m.path.as_bytes()) else {
            continue;
        };
        let wrong = |what: String| Error::malformed(archive, format!("`{}` in it {what}", member.path));
        let Some(at) = missing.iter().position(|m| m.path == member.path) else {
            return Err(wrong("is there twice".to_owned()));
        };
        missing.remove(at);
        if !entry.header().entry_type().is_file() {
            return Err(wrong("is no plain file".to_owned()));
        }
        if entry.size() != member.bytes {
            return Err(wrong(format!("has {} bytes, expected {}", entry.size(), member.bytes)));
        }
        let side = side(member);
        let mut out = File::create(&side).map_err(|error| Error::io(&side, &error))?;
        let copied = io::copy(&mut entry, &mut out).map_err(damaged)?;
        if copied != member.bytes {
            return Err(wrong(format!("ends after {copied} bytes, expected {}", member.bytes)));
        }
        out.sync_all().map_err(|error| Error::io(&side, &error))?;
    }
    match missing.first() {
        None => Ok(()),
        Some(member) => Err(Error::malformed(archive, format!("holds no `{}`", member.path))),
    }
}

/// A tar.gz of `files`, whose names are written as they are, sound or not.
#[cfg(test)]
pub(super) fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (name, bytes) in files {
        let mut header = tar::Header::new_old();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Vec<Member> {
        vec![Member::new("inside/one.bin", 3), Member::new("inside/two.bin", 3)]
    }

    /// Unpacks into a folder within a folder; returns the outcome and the names in both.
    fn unpack_bytes(bytes: &[u8]) -> (Result<(), Error>, usize, usize) {
        let outer = tempfile::tempdir().unwrap();
        let (archive, dir) = (outer.path().join("a.tar.gz"), outer.path().join("to"));
        fs::create_dir(&dir).unwrap();
        fs::write(&archive, bytes).unwrap();
        let outcome = unpack(&archive, &members(), &dir);
        assert_eq!(outcome.is_ok(), unpacked(&members(), &dir));
        let count = |dir: &Path| fs::read_dir(dir).unwrap().count();
        (outcome, count(outer.path()) - 2, count(&dir))
    }

    #[test]
    fn names_that_lead_elsewhere_write_nothing_anywhere() {
        for name in [
            "../one.bin",
            "inside/../../one.bin",
            "/tmp/inside/one.bin",
            "one.bin",
            "inside/one.bin/",
        ] {
            let (outcome, outside, inside) = unpack_bytes(&packed(&[(name, b"one"), ("inside/two.bin", b"two")]));
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("inside/one.bin"), "{error}");
            assert_eq!((outside, inside), (0, 0), "{name}");
        }
    }

    #[test]
    fn other_lengths_twins_and_every_truncation_leave_nothing() {
        let two: (&str, &[u8]) = ("inside/two.bin", b"two");
        for (files, part) in [
            (vec![("inside/one.bin", &b"four"[..]), two], "has 4 bytes"),
            (vec![("inside/one.bin", &b"one"[..]), two, two], "twice"),
            (vec![two], "holds no `inside/one.bin`"),
        ] {
            let (outcome, _, inside) = unpack_bytes(&packed(&files));
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(part) && inside == 0, "{error}");
        }
        let good = packed(&[("inside/one.bin", b"one"), two]);
        for len in 0..good.len() / 2 {
            let (outcome, _, inside) = unpack_bytes(&good[..len]);
            assert!(outcome.is_err() && inside == 0, "{len}");
        }
    }

    #[test]
    fn more_than_an_archive_may_hold_is_not_read() {
        let bomb = vec![0; 2 * BESIDES as usize];
        let (outcome, _, inside) = unpack_bytes(&packed(&[("bomb", &bomb), ("inside/one.bin", b"one")]));
        assert!(outcome.is_err() && inside == 0);
    }
}
