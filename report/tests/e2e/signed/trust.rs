//! The signer of a report, and the output of verification.

use fl_report::Report;
use fl_report::signed::{SignError, Signer, VerifyError, verify};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};

use crate::signed::sample::{Authority, NOW, contents, report, sealed};

#[test]
fn an_honest_report_is_verified_with_and_without_the_authority() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519] {
        let authority = Authority::with("fed authority", algorithm);
        let file = authority.sign(&report(3, 4));
        let verified = verify(file.as_bytes(), Some(&authority.certificate), NOW).unwrap();
        assert!(
            verified.trusted && verified.warnings.is_empty() && verified.differences.is_empty(),
            "{verified:?}"
        );
        assert_eq!(
            (verified.run.as_str(), verified.lines),
            ("digits", 1 + 3 + 4 + 12 + 3 + 3)
        );
        assert_eq!(
            (verified.signer.as_str(), verified.authority.as_str()),
            ("fl-server", "fed authority")
        );
        assert_eq!(verified.chain, format!("{:064x}", 3));
        assert_eq!(verified.authority_fingerprint.len(), 32 * 3 - 1);
        let alone = verify(file.as_bytes(), None, NOW).unwrap();
        assert!(!alone.trusted);
        assert_eq!(alone.authority_fingerprint, verified.authority_fingerprint);
    }
}

#[test]
fn a_report_of_nothing_yet_is_verified_too() {
    let authority = Authority::new("a");
    let mut empty = report(0, 0);
    empty.run.chain.clear();
    empty.baselines.clear();
    let verified = verify(authority.sign(&empty).as_bytes(), Some(&authority.certificate), NOW).unwrap();
    assert!(verified.differences.is_empty(), "{:?}", verified.differences);
}

#[test]
fn every_line_is_json_and_ends_in_its_seal() {
    for line in Authority::new("a").sign(&report(2, 2)).lines() {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(json["seal"].as_str().unwrap().len(), 64);
        if json["kind"] == "round" {
            assert_eq!(json["link"], format!("{:064x}", json["round"].as_u64().unwrap()));
        }
    }
}

#[test]
fn the_same_report_and_key_give_the_same_lines_but_for_the_signature() {
    let signer = Authority::new("a").signer();
    let write = || contents(&fl_report::signed::write(&report(2, 2), &signer).unwrap());
    let (mut first, mut second) = (write(), write());
    assert_ne!(first.pop(), second.pop());
    assert_eq!(first, second);
}

#[test]
fn a_report_signed_under_another_authority_is_refused_by_name() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("ours"));
    let file = theirs.sign(&report(1, 1));
    let error = verify(file.as_bytes(), Some(&ours.certificate), NOW).unwrap_err();
    assert!(
        matches!(&error, VerifyError::OtherAuthority { signer, .. } if signer == "fl-server"),
        "{error}"
    );
    // With the authority replaced by ours, and all lines resealed.
    let mut parts = contents(&file);
    let at = parts.len() - 3;
    parts[at] = contents(&ours.sign(&report(1, 1)))[at].clone();
    let error = verify(sealed(&parts).as_bytes(), Some(&ours.certificate), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Signature { .. }), "{error}");
}

#[test]
fn a_server_of_an_authority_below_the_federations_signs_with_both_certificates() {
    let root = Authority::new("root");
    let issuing = root.under("issuing");
    let server = issuing.issue("fl-server", ServerAuth);
    let refused = Signer::from_pem(&root.certificate, &server.certificate, &server.key).unwrap_err();
    assert!(
        refused.to_string().contains("was not issued by the authority"),
        "{refused}"
    );
    let chain = server.certificate + &issuing.certificate;
    let signer = Signer::from_pem(&root.certificate, &chain, &server.key).unwrap();
    let file = fl_report::signed::write(&report(1, 1), &signer).unwrap();
    let verified = verify(file.as_bytes(), Some(&root.certificate), NOW).unwrap();
    assert_eq!(
        (verified.signer.as_str(), verified.authority.as_str(), verified.trusted),
        ("fl-server", "root", true)
    );
    let other = Authority::new("root");
    let error = verify(file.as_bytes(), Some(&other.certificate), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::OtherAuthority { .. }), "{error}");
}

#[test]
fn a_client_cannot_sign_a_report() {
    let authority = Authority::new("a");
    let client = authority.issue("camera-07", ClientAuth);
    let refused = Signer::from_pem(&authority.certificate, &client.certificate, &client.key).unwrap_err();
    assert!(refused.to_string().contains("`camera-07` is not a server's"));
    // It signs a valid report with its own program.
    let mut parts = contents(&authority.sign(&report(1, 1)));
    parts.pop();
    let pem = serde_json::to_string(&client.certificate).unwrap();
    let at = parts.len() - 1;
    parts[at] = format!("{{\"kind\":\"certificate\",\"certificate\":{pem}");
    let seal = sealed(&parts).trim_end().rsplit('"').nth(1).unwrap().to_owned();
    let key = rcgen::KeyPair::from_pem(&client.key).unwrap();
    let signature = rcgen::SigningKey::sign(&key, format!("fl-report signed report 1\n{seal}\n").as_bytes()).unwrap();
    let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.push(format!(
        "{{\"kind\":\"signature\",\"algorithm\":\"ecdsa-p256-sha256\",\"signature\":\"{signature}\""
    ));
    let error = verify(sealed(&parts).as_bytes(), Some(&authority.certificate), NOW).unwrap_err();
    assert!(
        matches!(&error, VerifyError::NotAServer { signer, .. } if signer == "camera-07"),
        "{error}"
    );
}

#[test]
fn a_certificate_that_has_ended_is_a_warning() {
    let authority = Authority::new("a");
    let file = authority.sign(&report(1, 1));
    let later = verify(file.as_bytes(), Some(&authority.certificate), NOW + 11 * 86_400).unwrap();
    assert_eq!(later.warnings.len(), 2);
    assert!(later.warnings[0].contains("`fl-server` has expired"));
    let earlier = verify(file.as_bytes(), None, NOW - 2 * 86_400).unwrap();
    assert!(earlier.warnings[0].contains("not valid yet"));
}

#[test]
fn a_given_authority_that_is_none_is_named_so() {
    let authority = Authority::new("a");
    let file = authority.sign(&report(1, 1));
    let server = authority.issue("fl-server", ServerAuth);
    for given in [
        "",
        "hello",
        &server.key,
        &server.certificate,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let error = verify(file.as_bytes(), Some(given), NOW).unwrap_err();
        assert!(
            matches!(error, VerifyError::Authority(_)) && !error.is_corruption(),
            "{given}: {error}"
        );
    }
}

#[test]
fn a_key_that_does_not_fit_is_refused_before_anything_is_signed() {
    let authority = Authority::new("a");
    let (one, other) = (
        authority.issue("fl-server", ServerAuth),
        authority.issue("fl-server", ServerAuth),
    );
    let signer = |certificate: &str, key: &str| Signer::from_pem(&authority.certificate, certificate, key).unwrap_err();
    assert!(matches!(signer(&one.certificate, &other.key), SignError::Key(_)));
    assert!(matches!(signer(&one.certificate, "hello"), SignError::Key(_)));
    assert!(matches!(signer(&one.certificate, &one.certificate), SignError::Key(_)));
    assert!(matches!(signer(&one.key, &one.key), SignError::Certificate(_)));
    let foreign = Authority::new("a").issue("fl-server", ServerAuth);
    assert!(
        signer(&foreign.certificate, &foreign.key)
            .to_string()
            .contains("not issued by the authority")
    );
}

#[test]
fn figures_that_do_not_agree_are_named_although_they_were_signed() {
    let authority = Authority::new("a");
    let named = |change: &dyn Fn(&mut Report), expected: &str| {
        let mut report = report(3, 3);
        change(&mut report);
        let file = authority.sign(&report);
        let verified = verify(file.as_bytes(), Some(&authority.certificate), NOW).unwrap();
        let found = &verified.differences.found;
        assert!(
            found.iter().any(|found| found.contains(expected)),
            "{expected}: {found:?}"
        );
    };
    named(
        &|r| r.participations[4].flow.update += 1,
        "round 2: update is 306, that of its clients 307",
    );
    named(&|r| r.participations[4].flow.update += 1, "client camera-02: update is");
    named(
        &|r| r.participations[4].flow.update += 1,
        "round 2, client camera-02: socket_up is 150, that of its kinds together 151",
    );
    named(&|r| r.clients[1].flow.steps += 1, "client camera-02: steps is");
    named(
        &|r| r.totals.retries += 1,
        "the run: retries is 1, that of its rounds 0",
    );
    named(
        &|r| r.metered_up += 1,
        "the run: its flag says balanced, its figures say not balanced",
    );
    named(
        &|r| r.rounds[1].metered_down += 1,
        "round 2: its flag says balanced, its figures say not balanced",
    );
    named(
        &|r| r.rounds[1].balanced = false,
        "round 2: its flag says not balanced, its figures say balanced",
    );
    named(&|r| r.rounds[1].up.framed += 1, "round 2: framed_up is");
    named(
        &|r| r.rounds[0].accuracy = Some(1.5),
        "round 1: accuracy is 1.5, and a share is between 0 and 1",
    );
    named(
        &|r| r.tensors[2].section.bytes = 10_000,
        "round 3: the tensors of its updates have 10000 B",
    );
    named(
        &|r| r.baselines[0].frames_ratio *= 1.001,
        "fedavg-fp32: frames_ratio is",
    );
    named(&|r| r.run.chain = "00".into(), "its chain is `00`");
    named(
        &|r| drop(r.rounds.remove(1)),
        "round 2 has rows of clients or tensors, but no round row",
    );
    named(
        &|r| r.participations.push(r.participations[0].clone()),
        "round 1: client - occurs twice",
    );
}

#[test]
fn bytes_before_the_first_round_belong_to_one_that_never_opened() {
    let authority = Authority::new("a");
    let mut report = report(3, 3);
    report.rounds.remove(0);
    report.tensors.remove(0);
    for part in &mut report.participations[..3] {
        let client = report.clients.iter_mut().find(|client| client.client == part.client);
        let client = client.unwrap();
        client.updates -= 1;
        client.examples -= part.examples;
        client.framed -= part.stages.framed;
        (part.updated, part.examples) = (false, 0);
    }
    let verified = verify(authority.sign(&report).as_bytes(), None, NOW).unwrap();
    assert!(verified.differences.is_empty(), "{:?}", verified.differences);
}

#[test]
fn many_differences_are_counted_not_listed() {
    let authority = Authority::new("a");
    let mut report = report(50, 2);
    report.rounds.iter_mut().for_each(|round| round.examples += 1);
    let differences = verify(authority.sign(&report).as_bytes(), None, NOW)
        .unwrap()
        .differences;
    assert_eq!((differences.found.len(), differences.more), (20, 30));
}
