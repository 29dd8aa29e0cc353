//! The calls of the protocol, with domain types and this crate's errors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fl_proto::wire::federation_client::FederationClient;
use fl_proto::wire::{ProbeRequest, UpdateChunk, WatchRequest, probe_request, update_chunk};
use fl_proto::{
    Availability, BaseRequest, Departure, Dial, EvaluationReport, FetchRequest, JoinRequest, Joined, LeaveRequest,
    MAX_MESSAGE, MAX_REASON, ProbeHeader, ProtocolError, RunDigest, RunName, SignedCertificate, Silence, UpdateHeader,
    UpdateReply, chunks, client_tls, foreign_text, read_join, wire,
};
use rustls::ClientConfig as TlsConfig;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::config::{ClientConfig, check_address};
use crate::error::Error;
use crate::error_mapping;

/// Time limit of a call that moves no frame.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(crate) struct KnownRun {
    pub(crate) digest: RunDigest,
    pub(crate) joined: Arc<Joined>,
}

/// Where small updates go.
pub(crate) type Updates = mpsc::Sender<WatchRequest>;

pub(crate) fn tls(config: &ClientConfig) -> Result<Arc<TlsConfig>, Error> {
    client_tls(&config.authority, &config.own)
        .map_err(|why| Error::Config(format!("`authority`, `certificate` or `key` cannot be used: {why}")))
}

#[derive(Debug, Clone)]
pub(crate) struct Rpc {
    client: FederationClient<Channel>,
    config: Arc<ClientConfig>,
    /// How long the server may be silent; joining says.
    silence: Silence,
}

impl Rpc {
    /// Connects; `tls` resumes the session of an earlier connection.
    pub(crate) async fn connect(config: &Arc<ClientConfig>, tls: &Arc<TlsConfig>) -> Result<Self, Error> {
        check_address(&config.server).map_err(Error::Config)?;
        let dial = Dial {
            address: config.server.clone(),
            tls: Arc::clone(tls),
            meter: Arc::clone(&config.meter),
            paces: config.limits.paces.clone(),
            silence: Silence::default(),
            answered: config.answered.clone(),
        };
        let silence = dial.silence.clone();
        let channel = fl_proto::dial(dial)
            .await
            .map_err(|e| error_mapping::transport(&e, config))?;
        Ok(Self {
            silence,
            ..Self::over(channel, config)
        })
    }

    pub(crate) fn over(channel: Channel, config: &Arc<ClientConfig>) -> Self {
        let client = FederationClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Self {
            client,
            config: Arc::clone(config),
            silence: Silence::default(),
        }
    }

    /// Sends `header` and `data`, which the server discards. Completes when the server has read all of it; the replies follow.
    pub(crate) async fn probe(
        &mut self,
        header: ProbeHeader,
        data: Bytes,
    ) -> Result<Streaming<wire::ProbeReply>, Error> {
        let first = probe_request::Part::Header(header.into());
        let parts = std::iter::once(first).chain(chunks(data, 0).map(probe_request::Part::Data));
        let requests = tokio_stream::iter(parts.map(|part| ProbeRequest { part: Some(part) }));
        let status = match self.client.probe(requests).await {
            Ok(reply) => return Ok(reply.into_inner()),
            Err(status) => status,
        };
        Err(match status.code() {
            Code::Unimplemented => error_mapping::other_port(&self.config),
            Code::ResourceExhausted => Error::NotNow(foreign_text(status.message(), MAX_REASON)),
            _ => error_mapping::first_call(&status, &self.config),
        })
    }

    /// `known`: what an earlier reply told.
    pub(crate) async fn join(
        &mut self,
        request: JoinRequest,
        known: Option<&KnownRun>,
    ) -> Result<(Joined, RunDigest), Error> {
        let reply = self.client.join(with_timeout(request.into())).await;
        let reply = reply.map_err(|status| match status.code() {
            Code::Unimplemented => error_mapping::other_port(&self.config),
            _ => match error_mapping::first_call(&status, &self.config) {
                Error::NotNow(why) => Error::OtherTask(why),
                error => error,
            },
        })?;
        let known = known.map(|told| (told.digest, &*told.joined));
        let (joined, digest) = read_join(reply.into_inner(), known)?;
        self.silence.expect_pings(joined.ping_every);
        Ok((joined, digest))
    }

    /// The states of the run, and where small updates go.
    pub(crate) async fn watch(
        &mut self,
        joined: &Joined,
        availability: Availability,
    ) -> Result<(Streaming<wire::RoundState>, Updates), Error> {
        let first = WatchRequest {
            run: joined.run.to_string(),
            availability: (!availability.is_available()).then(|| availability.into()),
            ..WatchRequest::default()
        };
        let (updates, rest) = mpsc::channel(1);
        let requests = tokio_stream::once(first).chain(ReceiverStream::new(rest));
        let reply = self.client.watch(requests).await;
        Ok((self.reply(reply)?, updates))
    }

    pub(crate) async fn fetch(&mut self, request: FetchRequest) -> Result<Streaming<wire::ModelChunk>, Error> {
        let reply = self.client.fetch(wire::FetchRequest::from(request)).await;
        self.reply(reply)
    }

    pub(crate) async fn fetch_base(&mut self, request: BaseRequest) -> Result<Streaming<wire::BaseChunk>, Error> {
        let reply = self.client.fetch_base(wire::BaseRequest::from(request)).await;
        self.reply(reply)
    }

    pub(crate) async fn offer(&mut self, header: &UpdateHeader) -> Result<UpdateReply, Error> {
        // The answer depends on the identity and the length alone.
        let header = UpdateHeader {
            fidelity: Vec::new(),
            metrics: Arc::default(),
            evaluation: None,
            ..header.clone()
        };
        let reply = self.client.offer(with_timeout((&header).into())).await;
        Ok(self.reply(reply)?.try_into()?)
    }

    /// Uploads the frame from `header.offset` to its end.
    pub(crate) async fn submit(&mut self, header: &UpdateHeader, frame: Bytes) -> Result<UpdateReply, Error> {
        let first = update_chunk::Part::Header(header.into());
        let offset = usize::try_from(header.offset).unwrap_or(usize::MAX);
        let parts = std::iter::once(first).chain(chunks(frame, offset).map(update_chunk::Part::Data));
        let stream = tokio_stream::iter(parts.map(|part| UpdateChunk { part: Some(part) }));
        let reply = self.client.submit(stream).await;
        Ok(self.reply(reply)?.try_into()?)
    }

    pub(crate) async fn renew(&mut self, request: Vec<u8>) -> Result<SignedCertificate, Error> {
        let request = wire::RenewRequest {
            request: request.into(),
        };
        let reply = self.client.renew(with_timeout(request)).await;
        // The connection is fine: a later try may succeed.
        let reply = reply.map_err(|status| match status.code() {
            Code::ResourceExhausted => Error::NotNow(foreign_text(status.message(), MAX_REASON)),
            _ => self.error_of(&status),
        });
        let issued = reply?.into_inner().issued.ok_or(ProtocolError::Missing("issued"))?;
        Ok(issued.try_into()?)
    }

    /// Whether the evaluation counted.
    pub(crate) async fn evaluate(&mut self, report: EvaluationReport) -> Result<bool, Error> {
        let reply = self.client.evaluate(with_timeout(report.into())).await;
        Ok(self.reply(reply)?.counted)
    }

    /// Tells the server not to wait for this client. Best effort: a server that is not told notices that the client is gone.
    pub(crate) async fn leave(&mut self, run: &RunName, departure: Departure, reason: String) {
        let request = LeaveRequest {
            run: run.clone(),
            departure,
            reason,
        };
        let told = tokio::time::timeout(LEAVE_TIMEOUT, self.client.leave(wire::LeaveRequest::from(request))).await;
        if !matches!(told, Ok(Ok(_))) {
            tracing::debug!(?departure, "the server was not told that this client leaves");
        }
    }

    fn reply<T>(&self, reply: Result<Response<T>, Status>) -> Result<T, Error> {
        let reply = reply.map_err(|status| self.error_of(&status))?;
        Ok(reply.into_inner())
    }

    /// The error of a failed call or a broken stream, after the first call of the connection.
    pub(crate) fn error_of(&self, status: &Status) -> Error {
        error_mapping::later_call(status, &self.config)
    }
}

fn with_timeout<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}
