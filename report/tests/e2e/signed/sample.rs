//! Consistent reports, and certificates to sign them.

use fl_report::signed::{Signer, write};
use fl_report::{
    Baseline, ClientLine, Flow, Participation, Report, RoundLine, Run, SCHEMA, SectionBytes, Settings, StageBytes,
    TensorLine,
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SignatureAlgorithm,
};
use time::{Duration, OffsetDateTime};

/// The current time of all tests, in seconds since 1970.
pub(crate) const NOW: i64 = 1_800_000_000;

/// A consistent report of `rounds` rounds with `clients` clients.
pub(crate) fn report(rounds: u64, clients: u64) -> Report {
    let mut report = Report {
        schema: SCHEMA,
        run: Run {
            name: "digits".into(),
            state: "done".into(),
            chain: link(rounds),
            ..Run::default()
        },
        settings: Settings::default(),
        totals: Flow::default(),
        pending: Flow::default(),
        metered_up: 0,
        metered_down: 0,
        balanced: true,
        baselines: Vec::new(),
        rounds: (1..=rounds).map(round).collect(),
        clients: (1..=clients).map(client).collect(),
        participations: Vec::new(),
        tensors: Vec::new(),
        savings: Vec::new(),
        costs: None,
    };
    for line in &mut report.rounds {
        for client in &mut report.clients {
            let part = participation(line.round, client);
            line.flow.add(&part.flow);
            line.updates += 1;
            line.examples += part.examples;
            line.up.add(&part.stages);
            client.flow.add(&part.flow);
            client.updates += 1;
            client.examples += part.examples;
            client.framed += part.stages.framed;
            report.participations.push(part);
        }
        (line.metered_up, line.metered_down) = (line.flow.socket_up, line.flow.socket_down);
        report.totals.add(&line.flow);
        report.tensors.push(tensor(line.round));
    }
    let totals = &report.totals;
    (report.metered_up, report.metered_down) = (totals.socket_up, totals.socket_down);
    let frames = totals.frames_up() + totals.frames_down();
    report.baselines.push(Baseline {
        name: "fedavg-fp32".into(),
        through: rounds,
        up: 4_000,
        down: 5_000,
        frames_ratio: 9_000.0 / frames as f64,
        socket_ratio: 9_000.0 / totals.socket() as f64,
    });
    report
}

fn link(round: u64) -> String {
    format!("{round:064x}")
}

fn round(round: u64) -> RoundLine {
    RoundLine {
        round,
        closed: true,
        accuracy: round.is_multiple_of(2).then_some(0.5),
        seconds: 1.5,
        down: StageBytes {
            framed: 100,
            ..StageBytes::default()
        },
        balanced: true,
        link: link(round),
        ..RoundLine::default()
    }
}

fn client(number: u64) -> ClientLine {
    ClientLine {
        client: if number == 1 {
            "-".into()
        } else {
            format!("camera-{number:02}")
        },
        ..ClientLine::default()
    }
}

fn participation(round: u64, client: &ClientLine) -> Participation {
    let framed = 100 + round % 7;
    let mut flow = Flow {
        update: framed,
        control_up: 10,
        socket_up: 150,
        steps: 90,
        socket_down: 100,
        connections: 1,
        ..Flow::default()
    };
    flow.settle_transport();
    Participation {
        round,
        client: client.client.clone(),
        asked: true,
        updated: true,
        examples: 32,
        finish_seconds: Some(0.25),
        stages: StageBytes {
            fp32: 400,
            reduced: 200,
            quantized: 120,
            coded: 100,
            framed,
            entropy_bound: 0.0,
        },
        flow,
        ..Participation::default()
    }
}

fn tensor(round: u64) -> TensorLine {
    TensorLine {
        round,
        direction: "up".into(),
        tensor: "a \"quoted\"\nweight".into(),
        section: SectionBytes {
            index_bytes: 30,
            value_bytes: 40,
            bytes: 70,
            ..SectionBytes::default()
        },
        density: Some(0.1),
        ..TensorLine::default()
    }
}

/// A certificate and its key in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
    algorithm: &'static SignatureAlgorithm,
}

impl Authority {
    /// An authority like that of `fl-server init`.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// An authority with this type of keys.
    pub(crate) fn with(name: &str, algorithm: &'static SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
            algorithm,
        }
    }

    /// An authority that this one issued.
    pub(crate) fn under(&self, name: &str) -> Self {
        let key = KeyPair::generate_for(self.algorithm).unwrap();
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
            algorithm: self.algorithm,
        }
    }

    pub(crate) fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Issued {
        let key = KeyPair::generate_for(self.algorithm).unwrap();
        let mut params = params(name);
        params.extended_key_usages = vec![usage];
        Issued {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn signer(&self) -> Signer {
        let server = self.issue("fl-server", ExtendedKeyUsagePurpose::ServerAuth);
        Signer::from_pem(&self.certificate, &server.certificate, &server.key).unwrap()
    }

    pub(crate) fn sign(&self, report: &Report) -> String {
        write(report, &self.signer()).unwrap()
    }
}

fn params(name: &str) -> CertificateParams {
    let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - Duration::days(1);
    params.not_after = now + Duration::days(10);
    params
}

/// The lines of a file, with line ends.
pub(crate) fn lines(file: &str) -> Vec<String> {
    file.split_inclusive('\n').map(str::to_owned).collect()
}

/// A file of these contents (lines without seal and closing brace), resealed, which needs no key.
pub(crate) fn sealed(contents: &[String]) -> String {
    let mut last = "0".repeat(64);
    let mut file = String::new();
    for content in contents {
        let hash = blake3::derive_key("fl-report signed report 1 line", format!("{last}{content}").as_bytes());
        last = blake3::Hash::from(hash).to_hex().to_string();
        file += &format!("{content},\"seal\":\"{last}\"}}\n");
    }
    file
}

/// The lines without seals.
pub(crate) fn contents(file: &str) -> Vec<String> {
    let content = |line: &str| line[..line.rfind(",\"seal\":").unwrap()].to_owned();
    file.lines().map(content).collect()
}
