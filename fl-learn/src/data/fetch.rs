//! Downloads of public data sets, checked against their digests.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use md5::{Digest as _, Md5};

use super::error::Error;
use super::unpack::{Member, unpack, unpacked};

const MAX_BYTES: u64 = 512 << 20;
const NETWORK_TIMEOUT: Duration = Duration::from_secs(30);

/// One file of a public set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicFile {
    /// Name in the target folder.
    pub name: String,
    /// Where it is fetched from.
    pub url: String,
    /// MD5 of the file as its authors publish it, 32 hexadecimal digits.
    pub md5: String,
    /// Members of a tar.gz that the reader needs unpacked; empty for a file that is used directly.
    pub holds: Vec<Member>,
}

/// A data set that can be fetched by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Public {
    /// The name in `fl-client data get NAME`.
    pub name: String,
    /// Its files.
    pub files: Vec<PublicFile>,
}

/// What was done for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The file was there with the right digest.
    Present,
    /// The file was downloaded; its length in bytes.
    Downloaded(u64),
}

const FASHION: (&str, [&str; 4]) = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    [
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ],
);
const MNIST: (&str, [&str; 4]) = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    [
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ],
);
const IDX: [&str; 4] = [
    "train-images-idx3",
    "train-labels-idx1",
    "t10k-images-idx3",
    "t10k-labels-idx1",
];
const CIFAR: (&str, &str, &str) = (
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz",
    "c32a1d4ab5d03f1284b67883e8d87530",
);
/// What [`CIFAR`] holds: 10,000 records of 3,073 bytes each.
const CIFAR_HOLDS: [&str; 6] = [
    "cifar-10-batches-bin/data_batch_1.bin",
    "cifar-10-batches-bin/data_batch_2.bin",
    "cifar-10-batches-bin/data_batch_3.bin",
    "cifar-10-batches-bin/data_batch_4.bin",
    "cifar-10-batches-bin/data_batch_5.bin",
    "cifar-10-batches-bin/test_batch.bin",
];
const CIFAR_BYTES: u64 = 30_730_000;

impl Public {
    /// Names of all sets.
    pub const NAMES: &[&str] = &["fashion-mnist", "mnist", "cifar-10"];

    /// The set called `name`.
    ///
    /// # Errors
    /// `Config` if there is none; the error lists the known names.
    pub fn named(name: &str) -> Result<Self, Error> {
        let files = match name {
            "fashion-mnist" => idx_files(FASHION),
            "mnist" => idx_files(MNIST),
            "cifar-10" => vec![PublicFile {
                holds: CIFAR_HOLDS.map(|path| Member::new(path, CIFAR_BYTES)).into(),
                ..file(CIFAR.0, CIFAR.1, CIFAR.2)
            }],
            _ => {
                let known = Self::NAMES.join(", ");
                let why = format!("`{name}` is not known; there are {known}");
                return Err(Error::config("data set", why));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            files,
        })
    }
}

fn file(name: &str, base: &str, md5: &str) -> PublicFile {
    PublicFile {
        name: name.to_owned(),
        url: format!("{base}/{name}"),
        md5: md5.to_owned(),
        holds: Vec::new(),
    }
}

fn idx_files((base, sums): (&str, [&str; 4])) -> Vec<PublicFile> {
    let parts = IDX.iter().zip(sums);
    parts
        .map(|(part, md5)| file(&format!("{part}-ubyte.gz"), base, md5))
        .collect()
}

/// Downloads every file of `set` into `dir` and unpacks archives. A file with the right digest is kept, and so is a missing
/// archive whose members are all there with the right lengths. Any other file is downloaded to a side file, which is renamed
/// once its digest is right. `progress` receives the file, the bytes so far, and the total if the server announces it.
///
/// # Errors
/// `Network` if a file cannot be downloaded or has a wrong digest; the message says which files to copy where instead. `Io` if
/// the folder cannot be written. `Malformed` if an archive lacks a member; nothing is unpacked then.
pub fn fetch(
    set: &Public,
    dir: &Path,
    progress: &mut dyn FnMut(&PublicFile, u64, Option<u64>),
) -> Result<Vec<FetchOutcome>, Error> {
    fs::create_dir_all(dir).map_err(|error| Error::io(dir, &error))?;
    set.files.iter().map(|file| one(set, file, dir, progress)).collect()
}

fn one(
    set: &Public,
    file: &PublicFile,
    dir: &Path,
    progress: &mut dyn FnMut(&PublicFile, u64, Option<u64>),
) -> Result<FetchOutcome, Error> {
    let path = dir.join(&file.name);
    let whole = unpacked(&file.holds, dir);
    if !file.holds.is_empty() && whole && !path.exists() {
        return Ok(FetchOutcome::Present);
    }
    if File::open(&path).and_then(digest).is_ok_and(|md5| md5 == file.md5) {
        if !whole {
            unpack(&path, &file.holds, dir)?;
        }
        return Ok(FetchOutcome::Present);
    }
    let side = dir.join(format!("{}.part", file.name));
    let fetched = download(set, file, dir, &side, progress);
    let done = fetched.and_then(|bytes| {
        fs::rename(&side, &path).map_err(|error| Error::io(&path, &error))?;
        Ok(FetchOutcome::Downloaded(bytes))
    });
    if done.is_err() {
        // The side file may not exist.
        drop(fs::remove_file(&side));
    }
    let done = done?;
    if !file.holds.is_empty() {
        unpack(&path, &file.holds, dir)?;
    }
    Ok(done)
}

fn download(
    set: &Public,
    file: &PublicFile,
    dir: &Path,
    side: &Path,
    progress: &mut dyn FnMut(&PublicFile, u64, Option<u64>),
) -> Result<u64, Error> {
    let failed = |why: String| Error::Network {
        reason: instead(set, file, dir, &why),
    };
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(NETWORK_TIMEOUT))
        .timeout_recv_response(Some(NETWORK_TIMEOUT));
    let agent = ureq::Agent::new_with_config(config.build());
    let mut response = agent.get(&file.url).call().map_err(|error| failed(error.to_string()))?;
    let total = response.body().content_length();
    let mut body = response.body_mut().with_config().limit(MAX_BYTES).reader();
    let mut out = File::create(side).map_err(|error| Error::io(side, &error))?;
    let mut md5 = Md5::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = body.read(&mut buffer).map_err(|error| failed(error.to_string()))?;
        if count == 0 {
            break;
        }
        out.write_all(&buffer[..count])
            .map_err(|error| Error::io(side, &error))?;
        md5.update(&buffer[..count]);
        bytes += count as u64;
        progress(file, bytes, total);
    }
    out.sync_all().map_err(|error| Error::io(side, &error))?;
    let have = hex(&md5.finalize());
    if have == file.md5 {
        return Ok(bytes);
    }
    Err(failed(format!(
        "its {bytes} bytes have md5 {have}, expected {}: another or a damaged file",
        file.md5
    )))
}

fn instead(set: &Public, file: &PublicFile, dir: &Path, why: &str) -> String {
    let names: Vec<&str> = set.files.iter().map(|file| file.name.as_str()).collect();
    let held: Vec<&str> = file.holds.iter().map(Member::name).collect();
    let or_held = match held.is_empty() {
        true => String::new(),
        false => format!(
            " and run this again, or copy the files that it holds: {}",
            held.join(", ")
        ),
    };
    format!(
        "cannot fetch {}: {why}. Without a network, copy {} into {} from a machine that has {}{or_held}; files with \
         the right md5 are used as they are",
        file.url,
        names.join(", "),
        dir.display(),
        if names.len() == 1 { "it" } else { "them" },
    )
}

fn digest(mut file: File) -> std::io::Result<String> {
    let mut md5 = Md5::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&md5.finalize())),
            count => md5.update(&buffer[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::unpack::packed;
    use super::*;

    /// Serves `body` over HTTP to each of `times` connections; returns the address.
    fn serve(body: impl Into<Vec<u8>>, announced: usize, times: usize) -> String {
        let body = body.into();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(times) {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {announced}\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
            }
        });
        format!("http://{address}")
    }

    fn set(url: &str, md5: &str) -> Public {
        let file = PublicFile {
            name: "file.bin".into(),
            url: format!("{url}/file.bin"),
            md5: md5.into(),
            holds: Vec::new(),
        };
        Public {
            name: "test".into(),
            files: vec![file],
        }
    }

    const HELLO: &str = "5d41402abc4b2a76b9719d911017c592";

    #[test]
    fn a_file_is_fetched_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let set = set(&serve(b"hello", 5, 1), HELLO);
        let mut seen = Vec::new();
        let fetched = fetch(&set, dir.path(), &mut |_, bytes, total| seen.push((bytes, total))).unwrap();
        assert_eq!(fetched, [FetchOutcome::Downloaded(5)]);
        assert_eq!(seen.last(), Some(&(5, Some(5))));
        assert_eq!(
            fetch(&set, dir.path(), &mut |_, _, _| {}).unwrap(),
            [FetchOutcome::Present]
        );
        assert_eq!(fs::read(dir.path().join("file.bin")).unwrap(), b"hello");
    }

    #[test]
    fn a_wrong_or_short_file_never_takes_the_name() {
        for (body, announced) in [(&b"hullo"[..], 5), (b"hel", 5)] {
            let dir = tempfile::tempdir().unwrap();
            let set = set(&serve(body, announced, 1), HELLO);
            let error = fetch(&set, dir.path(), &mut |_, _, _| {}).unwrap_err().to_string();
            assert!(error.contains("copy file.bin into"), "{error}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    /// A set of one archive, of which two files of three bytes each are wanted.
    fn archive(url: &str, md5: &str) -> Public {
        let mut set = set(url, md5);
        set.files[0].holds = vec![Member::new("inside/one.bin", 3), Member::new("inside/two.bin", 3)];
        set
    }

    fn md5_of(bytes: &[u8]) -> String {
        hex(&Md5::digest(bytes))
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_archive_is_unpacked_beside_itself_once_its_digest_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let body = packed(&[
            ("inside/two.bin", b"two"),
            ("inside/readme", b"hi"),
            ("inside/one.bin", b"one"),
        ]);
        let (len, md5) = (body.len(), md5_of(&body));
        let set = archive(&serve(body, len, 1), &md5);
        let get = || fetch(&set, dir.path(), &mut |_, _, _| {});
        assert_eq!(get().unwrap(), [FetchOutcome::Downloaded(len as u64)]);
        assert_eq!(names(dir.path()), ["file.bin", "one.bin", "two.bin"]);
        assert_eq!(fs::read(dir.path().join("one.bin")).unwrap(), b"one");
        // The server answers once: what is missing now comes out of the archive.
        fs::remove_file(dir.path().join("two.bin")).unwrap();
        assert_eq!(get().unwrap(), [FetchOutcome::Present]);
        assert_eq!(fs::read(dir.path().join("two.bin")).unwrap(), b"two");
        // And the files do without it.
        fs::remove_file(dir.path().join("file.bin")).unwrap();
        assert_eq!(get().unwrap(), [FetchOutcome::Present]);
        assert_eq!(names(dir.path()), ["one.bin", "two.bin"]);
    }

    #[test]
    fn of_a_wrong_or_short_archive_nothing_is_unpacked() {
        let good = packed(&[("inside/one.bin", b"one"), ("inside/two.bin", b"two")]);
        let wrong = packed(&[("inside/one.bin", b"one"), ("inside/two.bin", b"owt")]);
        for body in [wrong, good[..good.len() / 2].to_vec()] {
            let dir = tempfile::tempdir().unwrap();
            let set = archive(&serve(body.clone(), good.len(), 1), &md5_of(&good));
            let error = fetch(&set, dir.path(), &mut |_, _, _| {}).unwrap_err();
            assert!(
                matches!(&error, Error::Network { reason } if reason.contains("one.bin, two.bin")),
                "{error}"
            );
            assert!(names(dir.path()).is_empty());
        }
    }

    #[test]
    fn the_hint_for_cifar_10_names_the_files_that_its_reader_opens() {
        let set = Public::named("cifar-10").unwrap();
        let hint = instead(&set, &set.files[0], Path::new("/some/where"), "no network");
        for name in [
            "cifar-10-binary.tar.gz",
            "data_batch_1.bin",
            "data_batch_5.bin",
            "test_batch.bin",
        ] {
            assert!(hint.contains(name), "{hint}");
        }
        assert!(hint.contains("/some/where"), "{hint}");
    }

    #[test]
    fn without_a_network_the_error_says_what_to_put_where() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let mut mnist = Public::named("mnist").unwrap();
        mnist
            .files
            .iter_mut()
            .for_each(|file| file.url = format!("{url}/{}", file.name));
        let error = fetch(&mnist, dir.path(), &mut |_, _, _| {}).unwrap_err().to_string();
        assert!(
            error.contains("train-images-idx3-ubyte.gz") && error.contains("Without a network"),
            "{error}"
        );
        assert!(
            Public::named("imagenet")
                .unwrap_err()
                .to_string()
                .contains("fashion-mnist")
        );
    }
}
