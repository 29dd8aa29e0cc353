//! The protocol that clients and server of a federation speak.
//!
//! The schema is `proto/fl/v1/federation.proto` and `enrollment.proto`, which are also the protocol document; [`wire`] is
//! generated from them.
//! Everything else in this crate is domain types: they are checked on receipt (`TryFrom`) and cannot be wrong after.
//! Nothing here knows about rounds, learners or storage; [`trace`] names the spans of a round, which both sides must do
//! alike, and sends them.

// Learning rates are the same on every machine.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod availability;
mod caught;
mod chunk;
mod codec;
mod enrollment;
mod error;
mod evaluation;
mod extra;
mod fidelity;
mod fingerprint;
mod foreign_text;
mod join;
mod joined_run;
mod leave;
mod limits;
mod meter;
mod metrics;
mod model;
mod names;
mod probe;
mod process;
mod regular_file;
mod round;
mod run_digest;
mod tensors;
mod tls;
pub mod trace;
mod training;
mod transport;
#[cfg(unix)]
mod unix_socket;
mod update;
pub mod wire;

pub use availability::Availability;
pub use caught::caught;
pub use chunk::{Assembler, chunks};
pub use enrollment::{Enrolled, EnrollmentLine, LineError, Secret, SignedCertificate, approval_words};
pub use error::ProtocolError;
pub use evaluation::EvaluationReport;
pub use extra::Extra;
pub use fidelity::SectionFidelity;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use foreign_text::foreign_text;
pub use join::{JoinRequest, Joined};
pub use joined_run::{JoinedRun, read_join};
pub use leave::{Departure, LeaveRequest};
pub use limits::*;
pub use meter::{Accepted, Meter, Metered, Pace, Paces, PeerInfo, Silence};
pub use metrics::{Metric, Metrics};
pub use model::{BaseRequest, FetchRequest, FramePart, ModelHeader, PartialFrame};
pub use names::{ClientId, RunName};
pub use probe::{ProbeHeader, Probed};
pub use process::{make_new_files_private, make_private_file, make_private_folder, open_files, raise_open_files};
pub use regular_file::open_regular;
pub use round::{ModelDigest, Phase, RoundState};
pub use run_digest::RunDigest;
pub use tls::{
    Authority, ForeignAuthority, Issued, Lifetime, NewKey, PairFiles, RequestError, Role, SigningRequest, TlsError,
    certificate_key, certificate_pem, certificates_of, client_tls, common_name, enrollment_tls, expiry, is_pair,
    issuer_of, newest_pair, next_path, page_tls, peer_expiry, peer_lifetime, peer_name, peer_role, pinned_client_tls,
    server_tls,
};
pub use training::{
    AdamW, Decay, Length, Muon, OptimizerSpec, Precision, Schedule, Span, StatePolicy, StepAt, TrainTable, Training,
};
pub use transport::{
    Answered, CLIENT_WINDOW, Dial, Handshaken, MAX_STREAMS, SERVER_WINDOW, accept, accept_uncertified, dial,
    first_address, handshake, server_builder,
};
#[cfg(unix)]
pub use unix_socket::{connect_private, listen_private};
pub use update::{Refusal, UpdateHeader, UpdateId, UpdateReply};
