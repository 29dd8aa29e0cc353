//! What a registry decides over time: for devices, for operators, and for whoever has stolen a key or read a line.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fl_proto::{
    Authority, ClientId, Enrolled, Fingerprint, Issued, NewKey, Role, Secret, SignedCertificate, SigningRequest,
};
use time::{Duration, OffsetDateTime};

use super::ask::{NewToken, RegistryAnswer, RegistryAsk, RevokeTarget};
use super::credential::Credential;
use super::enroll::EnrollmentRequest;
use super::refusal::Refusal;
use super::renew::MOST_UNUSED;
use super::seen::Joining;
use super::signer::Signer;
use super::token::MAX_TOKENS;
use super::{NamePattern, Registry};
use crate::clock::Millis;
use crate::storage::disk::{Disk, Fault, FaultKind};
use crate::storage::store::Store;

const BEGIN: Millis = 1_800_000_000_000;
const HOUR: Millis = 3_600_000;

/// A registry, its authority and its clock.
struct Fed {
    dir: tempfile::TempDir,
    registry: Registry,
    signer: Signer,
    authorities: Vec<Vec<u8>>,
    now: Millis,
}

/// A device: its key and its address.
struct Device(NewKey);

impl Device {
    fn new() -> Self {
        Self(NewKey::generate().unwrap())
    }

    fn request(&self) -> SigningRequest {
        SigningRequest::from_der(&self.0.request(None).unwrap()).unwrap()
    }
}

impl Fed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from_unix_timestamp(BEGIN as i64 / 1000).unwrap();
        let (_, root): (_, Issued) = Authority::create("fed", now, Duration::days(9999)).unwrap();
        let signer = Signer {
            authority: dir.path().join("authority.pem"),
            key: dir.path().join("authority.key"),
        };
        std::fs::write(&signer.authority, &root.certificate).unwrap();
        std::fs::write(&signer.key, &root.key).unwrap();
        Self {
            registry: open(&dir),
            authorities: signer.authorities().unwrap(),
            dir,
            signer,
            now: BEGIN,
        }
    }

    /// As after a restart of the server.
    fn reopened(self) -> Self {
        drop(self.registry);
        Self {
            registry: open(&self.dir),
            ..self
        }
    }

    fn ask(&mut self, ask: &RegistryAsk) -> Result<RegistryAnswer, String> {
        self.now += 1_000;
        self.registry.answer(ask, &self.signer, self.now)
    }

    fn line_with(&mut self, names: &str, change: impl FnOnce(&mut NewToken)) -> Result<Secret, String> {
        let secret = Secret::generate().unwrap();
        let mut new = NewToken {
            secret: secret.digest(),
            names: names.parse::<NamePattern>().unwrap(),
            role: Role::Client,
            uses: 1,
            ttl: HOUR,
            lifetime: 100 * HOUR,
            approve: false,
            again: false,
        };
        change(&mut new);
        self.ask(&RegistryAsk::Open(new)).map(|_| secret)
    }

    fn line(&mut self, names: &str, again: bool) -> Result<Secret, String> {
        self.line_with(names, |new| new.again = again)
    }

    fn call(&mut self, device: &Device, secret: &Secret) -> Result<Enrolled, Refusal> {
        self.now += 1_000;
        let asked = EnrollmentRequest {
            secret: secret.clone(),
            request: device.request(),
            name: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        self.registry.enroll(&asked, &self.signer, "", self.now)
    }

    fn enroll(&mut self, device: &Device, secret: &Secret) -> Credential {
        match self.call(device, secret).unwrap() {
            Enrolled::Issued { certificate, .. } => self.read(&certificate),
            Enrolled::Held { .. } => panic!("held"),
        }
    }

    fn read(&self, certificate: &SignedCertificate) -> Credential {
        Credential::of(&[&certificate.certificate], &self.authorities).unwrap()
    }

    fn renew(&mut self, name: &str, device: &Device) -> Result<SignedCertificate, Refusal> {
        self.now += 1_000;
        let shown = self.any(name);
        self.renew_by(&shown, device)
    }

    /// A certificate of this name that nothing refuses.
    fn any(&self, name: &str) -> Credential {
        let at = |hours: u64| OffsetDateTime::from_unix_timestamp(((self.now + hours * HOUR) / 1000) as i64).unwrap();
        Credential {
            client: name.parse().unwrap(),
            role: Role::Client,
            fingerprint: Fingerprint([0; 32]),
            lifetime: fl_proto::Lifetime {
                issued: at(0),
                expires: at(9),
            },
            issuer: Fingerprint::of(&self.authorities[0]),
        }
    }

    fn renew_by(&mut self, shown: &Credential, device: &Device) -> Result<SignedCertificate, Refusal> {
        self.registry
            .renew(shown, &device.request(), &self.signer, 100 * HOUR, self.now)
    }

    /// Joins if the registry refuses nothing; whether it did.
    fn join(&mut self, shown: &Credential) -> bool {
        self.now += 1_000;
        if self.registry.standings().refusal(shown).is_some() {
            return false;
        }
        let joining = Joining {
            shown: shown.clone().into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            software: String::new(),
            device: String::new(),
        };
        self.registry.joined(&joining, self.now).unwrap();
        true
    }

    fn revoke(&mut self, name: &str) {
        let (what, why) = (RevokeTarget::Client(name.parse().unwrap()), String::new());
        self.ask(&RegistryAsk::Revoke { what, why }).unwrap();
    }

    fn restore(&mut self, name: &str) {
        let what = RevokeTarget::Client(name.parse().unwrap());
        self.ask(&RegistryAsk::Restore { what }).unwrap();
    }
}

fn open(dir: &tempfile::TempDir) -> Registry {
    Registry::open(Store::open(dir.path(), Disk::default()).unwrap()).unwrap()
}

#[test]
fn a_change_that_cannot_be_stored_is_not_made() {
    let reason = || "stolen".to_owned();
    let name = || "anna".parse::<ClientId>().unwrap();
    type Change = fn(&mut Fed, &[Secret; 3], &Device) -> bool;
    let changes: [Change; 6] = [
        |fed, lines, _| fed.call(&Device::new(), &lines[0]).is_err(),
        |fed, lines, _| fed.call(&Device::new(), &lines[1]).is_err(),
        |fed, _, _| fed.line("carl", false).is_err(),
        |fed, _, held| {
            let key = held.0.key();
            fed.ask(&RegistryAsk::Approve { key, approve: true }).is_err()
        },
        |fed, _, _| {
            let name = "anna".to_owned();
            fed.ask(&RegistryAsk::Forget { name }).is_err()
        },
        |fed, lines, _| {
            let id = super::token::Token::id(&lines[0].digest());
            fed.ask(&RegistryAsk::RevokeToken { id }).is_err()
        },
    ];
    for change in changes {
        let set_up = |at| {
            let fault = Arc::new(Fault::new(FaultKind::Full, at));
            let mut fed = Fed::new();
            let dir = fed.dir.path().join("faulty");
            let disk = Disk::new(Some(Arc::clone(&fault)));
            fed.registry = Registry::open(Store::open(&dir, disk).unwrap()).unwrap();
            let first = fed.line("anna", false).unwrap();
            fed.enroll(&Device::new(), &first);
            let what = RevokeTarget::Client(name());
            fed.ask(&RegistryAsk::Revoke { what, why: reason() }).unwrap();
            let held = Device::new();
            let lines = [fed.line("berta-*", false), fed.line("anna", true)].map(Result::unwrap);
            let waits = fed.line_with("dora", |new| new.approve = true).unwrap();
            fed.call(&held, &waits).unwrap();
            let [open, again] = lines;
            (fed, [open, again, waits], held, fault.seen())
        };
        let (_, _, _, points) = set_up(u64::MAX);
        let (mut fed, lines, held, _) = set_up(points + 1);
        let state = |fed: &Fed| {
            let tokens = fed.registry.tokens.values();
            let tokens: Vec<_> = tokens
                .map(|token| (token.secret, token.revoked, token.taken.clone()))
                .collect();
            (fed.registry.clients.clone(), tokens)
        };
        let before = state(&fed);
        assert!(change(&mut fed, &lines, &held));
        assert_eq!(state(&fed), before);
    }
}

#[test]
fn a_client_that_uses_no_certificate_gets_no_more_and_the_same_key_gets_the_same() {
    let mut fed = Fed::new();
    let first = Device::new();
    let certificate = fed.renew("anna", &first).unwrap();
    for _ in 1..MOST_UNUSED {
        fed.renew("anna", &Device::new()).unwrap();
    }
    assert!(matches!(fed.renew("anna", &Device::new()), Err(Refusal::Unused(_))));
    assert_eq!(fed.renew("anna", &first).unwrap(), certificate);
    fed.now += 100 * HOUR;
    assert!(fed.renew("anna", &Device::new()).is_ok(), "the others have expired");
}

#[test]
fn a_stolen_key_is_out_when_its_name_is_revoked_and_stays_out() {
    for restored in [false, true] {
        let mut fed = Fed::new();
        let (device, line) = (Device::new(), fed.line("anna", false).unwrap());
        let stolen = fed.enroll(&device, &line);
        // The thief has renewed, and used neither that certificate nor another one.
        let renewed = fed.renew("anna", &Device::new()).unwrap();
        let renewed = fed.read(&renewed);
        assert!(fed.join(&stolen));
        fed.revoke("anna");
        assert!(!fed.join(&stolen) && !fed.join(&renewed));
        assert!(
            fed.line("anna", false).is_err(),
            "a line for a revoked name says `--again`"
        );
        let line = fed.line("anna", true).unwrap();
        if restored {
            fed.restore("anna");
        }
        assert!(
            !fed.join(&stolen) && !fed.join(&renewed),
            "before the device has enrolled"
        );
        let new = fed.enroll(&Device::new(), &line);
        assert!(
            !fed.join(&stolen) && !fed.join(&renewed),
            "before the device has joined"
        );
        assert!(fed.join(&new));
        let mut fed = fed.reopened();
        assert!(!fed.join(&stolen) && !fed.join(&renewed) && fed.join(&new));
    }
}

#[test]
fn a_revoked_client_that_is_restored_needs_no_new_certificate() {
    let mut fed = Fed::new();
    let line = fed.line("anna", false).unwrap();
    let own = fed.enroll(&Device::new(), &line);
    fed.revoke("anna");
    assert!(!fed.join(&own));
    fed.restore("anna");
    assert!(fed.join(&own));
}

#[test]
fn a_line_that_is_refused_outdates_no_certificate() {
    let mut fed = Fed::new();
    let line = fed.line("anna", false).unwrap();
    let own = fed.enroll(&Device::new(), &line);
    fed.revoke("anna");
    fed.line_with("anna", |new| (new.uses, new.again) = (2, true))
        .unwrap_err();
    fed.restore("anna");
    assert!(fed.join(&own));
}

#[test]
fn a_line_from_before_a_revocation_does_not_admit_the_name_again() {
    let mut fed = Fed::new();
    let line = fed
        .line_with("ward-*", |new| (new.uses, new.again) = (9, true))
        .unwrap();
    let first = fed.enroll(&Device::new(), &line);
    fed.revoke(first.client.as_str());
    let asked = |name: &ClientId| EnrollmentRequest {
        secret: line.clone(),
        request: Device::new().request(),
        name: Some(name.clone()),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let refused = fed.registry.enroll(&asked(&first.client), &fed.signer, "", fed.now);
    assert!(matches!(refused, Err(Refusal::TakenRevoked(_))));
    let later = fed
        .line_with("ward-*", |new| (new.uses, new.again) = (9, true))
        .unwrap();
    let asked = EnrollmentRequest {
        secret: later,
        ..asked(&first.client)
    };
    fed.registry.enroll(&asked, &fed.signer, "", fed.now).unwrap();
    assert!(!fed.join(&first));
}

#[test]
fn a_line_repeats_the_certificate_that_was_never_used_and_nothing_else() {
    let mut fed = Fed::new();
    let (device, line) = (Device::new(), fed.line("anna", false).unwrap());
    let first = fed.enroll(&device, &line);
    assert_eq!(fed.enroll(&device, &line), first, "the answer was lost");
    assert!(fed.join(&first));
    let used = |fed: &mut Fed| assert!(matches!(fed.call(&device, &line), Err(Refusal::Used { .. })));
    used(&mut fed);
    // Revoked by its fingerprint, or replaced, before it was used.
    for revoked in [true, false] {
        let (device, line) = (Device::new(), fed.line("anna", true).unwrap());
        let unused = fed.enroll(&device, &line);
        if revoked {
            let (what, why) = (RevokeTarget::Certificate(unused.fingerprint), String::new());
            fed.ask(&RegistryAsk::Revoke { what, why }).unwrap();
        } else {
            let newer = fed.renew("anna", &Device::new()).unwrap();
            let newer = fed.read(&newer);
            assert!(fed.join(&newer));
        }
        assert!(
            matches!(fed.call(&device, &line), Err(Refusal::Used { .. })),
            "{revoked}"
        );
    }
    // The line's end holds for a device that has used it, too.
    let (device, line) = (Device::new(), fed.line("berta", false).unwrap());
    fed.enroll(&device, &line);
    fed.now += HOUR;
    assert!(matches!(fed.call(&device, &line), Err(Refusal::Expired(_))));
}

#[test]
fn a_replaced_certificate_stays_out_however_many_came_after_it() {
    let mut fed = Fed::new();
    let line = fed.line("anna", false).unwrap();
    let mut all = vec![fed.enroll(&Device::new(), &line)];
    assert!(fed.join(&all[0]));
    for _ in 0..40 {
        let next = fed.renew("anna", &Device::new()).unwrap();
        let next = fed.read(&next);
        assert!(fed.join(&next));
        all.push(next);
    }
    let newest = all.pop().unwrap();
    let admitted = all.iter().filter(|one| fed.registry.standings().refusal(one).is_none());
    assert_eq!(admitted.count(), 0);
    assert!(fed.join(&newest));
}

#[test]
fn a_forgotten_client_is_out_and_its_name_is_free() {
    let mut fed = Fed::new();
    let line = fed.line("anna", false).unwrap();
    let old = fed.enroll(&Device::new(), &line);
    assert!(fed.join(&old));
    let name = "anna".to_owned();
    fed.ask(&RegistryAsk::Forget { name: name.clone() }).unwrap();
    assert!(!fed.join(&old));
    assert!(
        fed.ask(&RegistryAsk::Forget { name })
            .unwrap_err()
            .contains("there is no client")
    );
    let line = fed.line("anna", false).unwrap();
    let new = fed.enroll(&Device::new(), &line);
    assert!(!fed.join(&old) && fed.join(&new));
}

#[test]
fn an_operator_answers_a_key_and_not_a_name() {
    let mut fed = Fed::new();
    let line = fed.line("anna", false).unwrap();
    fed.enroll(&Device::new(), &line);
    let [(one, first), (other, second)] = [(); 2].map(|()| {
        let line = fed
            .line_with("anna", |new| (new.approve, new.again) = (true, true))
            .unwrap();
        let device = Device::new();
        assert!(matches!(fed.call(&device, &line), Ok(Enrolled::Held { .. })));
        (device, line)
    });
    let RegistryAnswer::Clients(lines) = fed.ask(&RegistryAsk::Clients { after: String::new() }).unwrap() else {
        panic!("clients");
    };
    let held: Vec<_> = lines.iter().filter_map(|line| line.key.as_ref()).collect();
    assert_eq!(held.len(), 2);
    let key = other.request().key();
    assert!(held.contains(&&key.to_string()));
    fed.ask(&RegistryAsk::Approve { key, approve: true }).unwrap();
    assert!(matches!(fed.call(&one, &first), Ok(Enrolled::Held { .. })));
    assert!(matches!(fed.call(&other, &second), Ok(Enrolled::Issued { .. })));
    assert!(
        fed.ask(&RegistryAsk::Approve { key, approve: true }).is_err(),
        "it waits no more"
    );
    // After the line's end nobody waits.
    let key: Fingerprint = one.request().key();
    fed.now += HOUR;
    assert!(fed.ask(&RegistryAsk::Approve { key, approve: true }).is_err());
    let free = fed.line_with("berta", |new| new.approve = true).unwrap();
    assert!(matches!(fed.call(&Device::new(), &free), Ok(Enrolled::Held { .. })));
    fed.now += HOUR;
    let line = fed.line("berta", false).unwrap();
    fed.enroll(&Device::new(), &line);
}

#[test]
fn closed_lines_make_room_and_open_ones_stay() {
    let mut fed = Fed::new();
    let open = fed.line("anna", false).unwrap();
    let sample = fed.registry.tokens.values().next().unwrap().clone();
    let fill = |fed: &mut Fed, revoked| {
        for n in fed.registry.tokens.len()..MAX_TOKENS {
            let mut token = sample.clone();
            (token.created, token.revoked) = (BEGIN - n as u64, revoked);
            fed.registry.tokens.insert(format!("{n:09}"), token);
        }
    };
    let used = fed.line_with("dora-*", |new| new.uses = 2).unwrap();
    for _ in 0..2 {
        fed.enroll(&Device::new(), &used);
    }
    let used = super::token::Token::id(&used.digest());
    fed.ask(&RegistryAsk::RevokeToken { id: used.clone() }).unwrap();
    fed = fed.reopened();
    let line = fed.registry.tokens.get_mut(&used).unwrap();
    assert_eq!(
        line.taken.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["dora-00", "dora-01"]
    );
    line.created = 0;
    fill(&mut fed, Some(BEGIN));
    let next = fed.line("berta", false).unwrap();
    assert!(fed.registry.tokens.len() < MAX_TOKENS);
    for line in [open, next] {
        fed.enroll(&Device::new(), &line);
    }
    let kept = fed.registry.tokens.clone();
    assert!(!kept.contains_key(&used), "the oldest goes first");
    let mut fed = fed.reopened();
    assert!(
        fed.registry.tokens.keys().all(|id| kept.contains_key(id)),
        "what went is not stored either"
    );
    fed.registry.tokens.clear();
    fill(&mut fed, None);
    assert!(fed.line("carl", false).unwrap_err().contains("lines are open"));
}

/// Memory of this process, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

/// The table of docs/benchmarks.md: what a join, an enrollment and the list of clients cost with so many names.
#[test]
#[ignore = "enrolls 100,000 devices; ten minutes"]
fn a_hundred_thousand_names() {
    use std::time::Instant;
    let before = resident();
    let mut fed = Fed::new();
    let mut last: Vec<Credential> = Vec::new();
    for total in [100, 100_000] {
        let mut enrolling = Vec::new();
        while fed.registry.clients.len() < total {
            let uses = 1_000.min(total - fed.registry.clients.len()) as u32;
            let line = fed.line_with("camera-*", |new| new.uses = uses).unwrap();
            for at in 0..uses {
                let device = Device::new();
                let begun = Instant::now();
                let enrolled = fed.call(&device, &line).unwrap();
                enrolling.push(begun.elapsed());
                let Enrolled::Issued { certificate, .. } = enrolled else {
                    panic!("held")
                };
                let shown = fed.read(&certificate);
                assert!(fed.join(&shown));
                if at < 100 {
                    last.push(shown);
                }
            }
        }
        let tail = last.split_off(last.len() - 100);
        let mut joining: Vec<_> = (0..1_000)
            .map(|at| {
                fed.now += 61_000;
                let begun = Instant::now();
                assert!(fed.join(&tail[at % tail.len()]));
                begun.elapsed()
            })
            .collect();
        joining.sort_unstable();
        enrolling.sort_unstable();
        let (begun, mut after, mut listed) = (Instant::now(), String::new(), 0);
        loop {
            let page = fed.ask(&RegistryAsk::Clients { after: after.clone() }).unwrap();
            let RegistryAnswer::Clients(page) = page else {
                panic!("clients")
            };
            let Some(end) = page.last() else { break };
            (after, listed) = (end.name.clone(), listed + page.len());
        }
        assert_eq!(listed, total);
        println!(
            "{total} names: a join {:?} in the median, {:?} in 99 of 100; an enrollment {:?}, {:?}; the list {:?}; {} MiB",
            joining[500],
            joining[990],
            enrolling[enrolling.len() / 2],
            enrolling[enrolling.len() * 99 / 100],
            begun.elapsed(),
            resident() - before,
        );
        last = tail;
    }
}

#[test]
fn a_renewal_that_waited_behind_a_change_of_an_operator_is_refused() {
    for forgotten in [true, false] {
        let mut fed = Fed::new();
        let line = fed.line("anna", false).unwrap();
        let stolen = fed.enroll(&Device::new(), &line);
        assert!(fed.join(&stolen));
        if forgotten {
            let name = "anna".to_owned();
            fed.ask(&RegistryAsk::Forget { name }).unwrap();
        } else {
            let newer = fed.renew_by(&stolen, &Device::new()).unwrap();
            let newer = fed.read(&newer);
            assert!(fed.join(&newer));
        }
        let again = fed.renew_by(&stolen, &Device::new());
        assert!(matches!(again, Err(Refusal::Ended(_))));
        // So is the note of a join.
        let joining = Joining {
            shown: stolen.clone().into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            software: String::new(),
            device: String::new(),
        };
        assert!(!fed.registry.joined(&joining, fed.now).unwrap());
        assert_eq!(fed.registry.clients[&stolen.client].is_forgotten(), forgotten);
    }
}

#[test]
fn what_a_thief_asked_for_does_not_count_against_the_device_that_takes_its_place() {
    let mut fed = Fed::new();
    let line = fed.line("anna", false).unwrap();
    let stolen = fed.enroll(&Device::new(), &line);
    while fed.renew_by(&stolen, &Device::new()).is_ok() {}
    fed.revoke("anna");
    let line = fed.line("anna", true).unwrap();
    let own = fed.enroll(&Device::new(), &line);
    assert!(fed.join(&own));
    fed.renew_by(&own, &Device::new()).unwrap();
}

#[test]
fn an_approval_from_before_a_revocation_gives_nothing_after_it() {
    let mut fed = Fed::new();
    let early = fed.line_with("anna", |new| new.approve = true).unwrap();
    let thief = Device::new();
    fed.call(&thief, &early).unwrap();
    let key = thief.request().key();
    fed.ask(&RegistryAsk::Approve { key, approve: true }).unwrap();
    fed.revoke("anna");
    let line = fed.line("anna", true).unwrap();
    let own = fed.enroll(&Device::new(), &line);
    assert!(fed.join(&own));
    assert!(matches!(fed.call(&thief, &early), Err(Refusal::Ended(_))));
    assert!(fed.join(&own));
}

#[test]
fn a_name_that_was_approved_and_not_fetched_is_not_given_to_another_device() {
    let mut fed = Fed::new();
    let line = fed.line_with("ward-*", |new| (new.uses, new.approve) = (5, true));
    let (line, devices) = (line.unwrap(), [Device::new(), Device::new()]);
    for device in &devices {
        fed.call(device, &line).unwrap();
        let key = device.request().key();
        fed.ask(&RegistryAsk::Approve { key, approve: true }).unwrap();
    }
    let names = devices
        .each_ref()
        .map(|device| fed.enroll(device, &line).client.to_string());
    assert_eq!(names, ["ward-00", "ward-01"]);
}
