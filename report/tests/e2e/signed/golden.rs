//! Files of every version of the format, which must verify forever.

use std::path::Path;

use fl_report::signed::verify;

use crate::signed::sample::{Authority, NOW, report};

/// Signed with the key type of `fl-server init`, and with Ed25519.
const GOLDEN: [&str; 2] = ["signed-1-p256", "signed-1-ed25519"];

fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[test]
fn reports_signed_in_the_past_are_verified() {
    for name in GOLDEN {
        let file = std::fs::read(path(&format!("{name}.jsonl"))).unwrap();
        let authority = std::fs::read_to_string(path(&format!("{name}.authority.pem"))).unwrap();
        let verified = verify(&file, Some(&authority), NOW).unwrap();
        assert!(verified.trusted && verified.warnings.is_empty(), "{verified:?}");
        assert!(verified.differences.is_empty(), "{:?}", verified.differences);
        assert_eq!((verified.run.as_str(), verified.lines), ("digits", 17));
    }
}

/// How the files were generated. From the first release on, an existing file is never regenerated: it stands for programs of its
/// time.
#[test]
#[ignore = "makes golden files that are missing"]
fn make_golden_files_that_are_missing() {
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519];
    for (name, algorithm) in GOLDEN.into_iter().zip(kinds) {
        let file = path(&format!("{name}.jsonl"));
        if !file.exists() {
            let authority = Authority::with("golden authority", algorithm);
            std::fs::write(file, authority.sign(&report(2, 3))).unwrap();
            std::fs::write(path(&format!("{name}.authority.pem")), authority.certificate).unwrap();
        }
    }
}
