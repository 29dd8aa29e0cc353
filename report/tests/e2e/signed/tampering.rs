//! Files changed without the key: verification detects every change and its place.

use fl_report::signed::{Change, VerifyError, verify};
use proptest::prelude::*;

use crate::signed::sample::{Authority, NOW, contents, lines, report, sealed};

/// The line numbers in an error.
fn named(error: &VerifyError) -> Vec<usize> {
    match error {
        VerifyError::Edited { places, .. } => places.iter().map(|place| place.line).collect(),
        VerifyError::Truncated { line, .. } => vec![*line],
        other => panic!("neither edited nor cut short: {other}"),
    }
}

fn refused(file: impl AsRef<[u8]>) -> VerifyError {
    verify(file.as_ref(), None, NOW).unwrap_err()
}

#[test]
fn every_changed_byte_is_found_in_its_line() {
    let authority = Authority::new("fed authority");
    let file = authority.sign(&report(2, 2)).into_bytes();
    assert!(verify(&file, Some(&authority.certificate), NOW).is_ok());
    let mut line = 1;
    let mut changed = file.clone();
    for at in 0..file.len() {
        for bits in [
            0x01,
            0x02,
            0x10,
            0x20,
            0x80,
            0xff,
            file[at],
            file[at] ^ b'\n',
            file[at] ^ b'"',
            file[at] ^ b'5',
        ] {
            if bits == 0 {
                continue;
            }
            changed[at] = file[at] ^ bits;
            let error = refused(&changed);
            assert_eq!(named(&error)[0], line, "byte {at} ^ {bits:#x}: {error}");
            assert!(error.is_corruption());
        }
        changed[at] = file[at];
        line += usize::from(file[at] == b'\n');
    }
}

#[test]
fn a_changed_byte_names_one_line_alone_and_what_it_is_about() {
    let file = Authority::new("a").sign(&report(2, 2));
    let at = file.find(r#""round":2,"client":"camera-02""#).unwrap();
    let error = refused(file.replacen(
        r#""round":2,"client":"camera-02","asked":true"#,
        r#""round":2,"client":"camera-02","asked":null"#,
        1,
    ));
    let VerifyError::Edited { places, more: 0 } = &error else {
        panic!("{error}");
    };
    let [place] = &places[..] else { panic!("{error}") };
    assert_eq!(place.about, "participation, round 2, client camera-02");
    assert_eq!(place.change, Change::Content);
    assert!(place.start < at && at < place.end);
    assert!(error.to_string().contains("round 2, client camera-02"));
}

#[test]
fn a_seal_that_was_changed_is_told_from_a_line_that_was() {
    let mut lines = lines(&Authority::new("a").sign(&report(2, 2)));
    let end = lines[3].len() - 4;
    let other = if &lines[3][end..=end] == "0" { "1" } else { "0" };
    lines[3].replace_range(end..=end, other);
    let VerifyError::Edited { places, .. } = refused(lines.concat()) else {
        panic!("not found");
    };
    assert_eq!((places.len(), places[0].line, places[0].change), (1, 4, Change::Seal));
}

#[test]
fn a_file_cut_short_anywhere_is_refused_there() {
    let file = Authority::new("a").sign(&report(1, 2)).into_bytes();
    assert_eq!(refused(b""), VerifyError::NotSigned("it is empty"));
    for len in 1..file.len() {
        let whole = file[..len - 1].iter().filter(|byte| **byte == b'\n').count();
        let error = refused(&file[..len]);
        assert!(
            matches!(error, VerifyError::Truncated { line, .. } if line == whole + 1),
            "{len}: {error}"
        );
    }
}

#[test]
fn lines_moved_taken_out_put_in_or_doubled_are_found() {
    let file = Authority::new("a").sign(&report(3, 3));
    let all = lines(&file);
    let changed = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = all.clone();
        change(&mut lines);
        match refused(lines.concat()) {
            VerifyError::Edited { places, .. } => (places[0].line, places[0].change),
            other => panic!("{other}"),
        }
    };
    for at in 0..all.len() - 1 {
        assert_eq!(changed(&|lines| lines.swap(at, at + 1)).0, at + 1);
        assert_eq!(
            changed(&|lines| lines.insert(at, lines[at].clone())),
            (at + 2, Change::Doubled)
        );
        let foreign = changed(&|lines| lines.insert(at + 1, lines[(at + 5) % all.len()].clone()));
        assert_eq!(foreign, (at + 2, Change::Foreign));
        if at > 0 {
            assert_eq!(changed(&|lines| drop(lines.remove(at))), (at + 1, Change::Content));
        }
    }
    let mut headless = all.clone();
    headless.remove(0);
    assert_eq!(named(&refused(headless.concat())), [1]);
    // Lines after the end, even if sealed, which needs no key.
    assert_eq!(named(&refused(format!("{file}x"))), [all.len() + 1]);
    assert_eq!(named(&refused(format!("{file}\n"))), [all.len() + 1]);
    let mut more = contents(&file);
    more.push(more[1].clone());
    let error = refused(sealed(&more));
    assert!(
        error
            .to_string()
            .contains("the signature, which is the last line, is missing"),
        "{error}"
    );
}

#[test]
fn a_line_changed_and_sealed_anew_is_not_what_was_signed() {
    let authority = Authority::new("a");
    let file = authority.sign(&report(2, 2));
    assert_eq!(sealed(&contents(&file)), file);
    let parts = contents(&file);
    for at in 0..parts.len() {
        let mut parts = parts.clone();
        let changed = parts[at].replacen("1", "2", 1);
        parts[at] = if at == 0 {
            parts[at].replacen("digits", "digitz", 1)
        } else {
            changed
        };
        let error = refused(sealed(&parts));
        let certificates = at + 3 >= parts.len();
        let signature = matches!(error, VerifyError::Signature { line } if line == parts.len());
        // A changed certificate may no longer parse.
        assert!(
            signature || (certificates && matches!(error, VerifyError::Malformed { line, .. } if line == at + 1)),
            "{error}"
        );
    }
}

#[test]
fn other_files_are_called_what_they_are() {
    let file = Authority::new("a").sign(&report(1, 1));
    let not = |file: &str| assert!(matches!(refused(file), VerifyError::NotSigned(_)), "{file}");
    not("{\"schema\":1}\n");
    not("\u{feff}{");
    not("hello");
    not(&file.replace('\n', "\r\n"));
    assert!(refused(file.replace('\n', "\r\n")).to_string().contains("Windows"));
    let newer = contents(&file.replacen("\"version\":1", "\"version\":2", 1));
    assert_eq!(refused(sealed(&newer)), VerifyError::Version { found: 2 });
    assert!(!refused(sealed(&newer)).is_corruption());
}

proptest! {
    #[test]
    fn no_bytes_whatsoever_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), lines in prop::collection::vec("[ -~]{0,80}", 0..6)) {
        prop_assert!(verify(&bytes, None, NOW).is_err());
        // Also with valid seals.
        let begun = lines.iter().map(|line| format!("{{\"kind\":\"{line}"));
        let header = "{\"kind\":\"header\",\"format\":\"fl-report-signed\",\"version\":1".to_owned();
        let contents: Vec<String> = std::iter::once(header).chain(begun).collect();
        prop_assert!(verify(sealed(&contents).as_bytes(), None, NOW).is_err());
    }
}

#[test]
fn no_certificate_whatsoever_panics() {
    let authority = Authority::new("a");
    let parts = contents(&authority.sign(&report(1, 1)));
    proptest!(ProptestConfig::with_cases(300), |(line in 0..3_usize, at in any::<prop::sample::Index>(), char in "[ -~]")| {
        let mut parts = parts.clone();
        let line = parts.len() - 1 - line;
        let at = at.index(parts[line].len());
        prop_assume!(parts[line][at..=at] != char && parts[line].is_char_boundary(at));
        parts[line].replace_range(at..=at, &char);
        let verified = verify(sealed(&parts).as_bytes(), Some(&authority.certificate), NOW);
        prop_assert!(verified.is_err());
    });
}
