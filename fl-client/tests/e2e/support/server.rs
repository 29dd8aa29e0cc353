//! The scripted server: the generated service over mutual TLS on a loopback socket, in a separate runtime so that it
//! can be killed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use fl_compress::Digest;
use fl_proto::wire::federation_server::{Federation, FederationServer};
use fl_proto::wire::{self, model_chunk, update_chunk};
use fl_proto::{
    Accepted, CHUNK, Departure, EvaluationReport, FetchRequest, Joined, MAX_MESSAGE, Meter, Phase, Refusal,
    UpdateHeader, UpdateReply, accept, server_builder, server_tls,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::{Call, Certificates, Fault, RUN, TASK, World};

pub struct TestServer {
    runtime: Option<tokio::runtime::Runtime>,
    address: String,
    pub certificates: Certificates,
    pub world: Arc<Mutex<World>>,
}

impl TestServer {
    pub fn start(world: World) -> Self {
        Self::at("127.0.0.1:0", &Certificates::new("fed"), Arc::new(Mutex::new(world)))
    }

    /// Starts on a given address, for example of a killed server.
    pub fn at(address: &str, certificates: &Certificates, world: Arc<Mutex<World>>) -> Self {
        // A killed server frees its port only when its threads notice.
        let listener = loop {
            match std::net::TcpListener::bind(address) {
                Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => std::thread::yield_now(),
                bound => break bound.unwrap(),
            }
        };
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let tls = server_tls(&certificates.authority.certificate, &certificates.server).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let service = FederationServer::new(Service(Arc::clone(&world)))
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let (sender, incoming) = tokio::sync::mpsc::channel(1);
            tokio::spawn(let_in(listener, tls, sender));
            let mut server = server_builder(fl_proto::MAX_STREAMS, fl_proto::DEFAULT_PING_EVERY);
            let server = server.add_service(service);
            server.serve_with_incoming(ReceiverStream::new(incoming)).await.unwrap();
        });
        Self {
            runtime: Some(runtime),
            address,
            certificates: certificates.clone(),
            world,
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Kills this server; returns one of the same address and certificates.
    pub async fn replaced(mut self, world: Arc<Mutex<World>>) -> Self {
        self.kill();
        let (address, certificates) = (self.address.clone(), self.certificates.clone());
        let next = tokio::task::spawn_blocking(move || Self::at(&address, &certificates, world));
        next.await.unwrap()
    }

    /// Closes every connection and frees the port.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Accepts connections and performs the TLS handshakes.
async fn let_in(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    sender: tokio::sync::mpsc::Sender<std::io::Result<Accepted>>,
) {
    while let Ok((io, address)) = listener.accept().await {
        let (tls, sender) = (Arc::clone(&tls), sender.clone());
        tokio::spawn(async move {
            if let Ok(accepted) = accept(io, address, Arc::new(Meter::default()), tls, fl_proto::CONNECT_TIMEOUT).await
            {
                let _ = sender.send(Ok(accepted)).await;
            }
        });
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Service(Arc<Mutex<World>>);

type Answer<T> = Result<Response<T>, Status>;
type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// An update on the watch stream.
    fn take(&self, mut header: wire::UpdateHeader, frame: &[u8]) -> wire::UpdateReply {
        if let Some(id) = &mut header.id {
            assert_eq!(std::mem::replace(&mut id.run, RUN.to_owned()), "");
        }
        let header = UpdateHeader::try_from(header).unwrap();
        let mut world = self.world();
        world.called(Call::Push { round: header.id.round });
        world.headers.push(header.clone());
        match world.faults.pop_front() {
            None => {}
            Some(Fault::LoseReceipt) => return wire::UpdateReply::default(),
            Some(fault) => panic!("{fault:?} on the watch stream"),
        }
        if let Some(report) = header.evaluation {
            world.evaluations.push(report);
        }
        world.accept(header.id.round, header.id.digest, frame.to_vec());
        UpdateReply::Accepted.into()
    }

    fn verdict(&self, round: u64, digest: Digest) -> UpdateReply {
        let world = self.world();
        let refused = |why| UpdateReply::Refused {
            why,
            message: format!("{why:?}"),
        };
        if world.accepted.iter().any(|(_, accepted, _)| *accepted == digest) {
            UpdateReply::Accepted
        } else if world.refused.contains(&digest) || round != world.round {
            refused(Refusal::NotThisRound)
        } else {
            UpdateReply::Wanted {
                offset: world.partial.get(&digest.0).map_or(0, |bytes| bytes.len() as u64),
            }
        }
    }
}

#[tonic::async_trait]
impl Federation for Service {
    type WatchStream = Replies<wire::RoundState>;
    type FetchBaseStream = Replies<wire::BaseChunk>;
    type ProbeStream = Replies<wire::ProbeReply>;
    type FetchStream = Replies<wire::ModelChunk>;

    async fn join(&self, request: Request<wire::JoinRequest>) -> Answer<wire::JoinReply> {
        if let Some(code) = self.world().denies {
            return Err(Status::new(code, "denied by the test"));
        }
        let request = fl_proto::JoinRequest::try_from(request.into_inner())?;
        if !request.tasks.iter().any(|task| task == TASK) {
            return Err(Status::failed_precondition(format!("this run needs task `{TASK}`")));
        }
        let pending = request.pending.as_ref().map(|id| self.verdict(id.round, id.digest));
        let mut world = self.world();
        let refused = world.refused_classes.filter(|digest| request.classes.contains(digest));
        world.classes.push(request.classes);
        if let Some(digest) = refused {
            let why = format!("the classes (digest {digest:016x}) differ from those of the others");
            return Err(Status::failed_precondition(why));
        }
        world.called(Call::Join {
            pending: request.pending.map(|id| id.round),
        });
        let joined = Joined {
            client: world.client.parse()?,
            run: RUN.parse()?,
            task: TASK.into(),
            rounds: world.rounds,
            seed: 42,
            layout: world.layout.as_ref().clone(),
            aside: Vec::new(),
            base: None,
            serves_base: false,
            training: world.training,
            extra: Default::default(),
            uplink: world.spec.clone(),
            max_frame: 1 << 20,
            pending,
            initial: Digest::of_f32(&world.versions[0].0),
            instance: world.instance,
            minor: fl_proto::PROTOCOL_MINOR,
            average: world.average,
            ping_every: fl_proto::DEFAULT_PING_EVERY,
        };
        let run = fl_proto::JoinedRun::of(&joined)?;
        Ok(Response::new(run.reply(&joined.client, joined.pending, None)))
    }

    async fn watch(&self, request: Request<Streaming<wire::WatchRequest>>) -> Answer<Self::WatchStream> {
        let mut requests = request.into_inner();
        let first = requests.message().await?.unwrap_or_default();
        if let Some(availability) = first.availability {
            self.world().called(Call::Reports(availability.try_into().unwrap()));
        }
        if self.world().ends && matches!(self.world().phase, Phase::Done | Phase::Failed) {
            let last = self.world().state.borrow().clone();
            return Ok(Response::new(Box::pin(tokio_stream::once(Ok(last.into())))));
        }
        let states = WatchStream::new(self.world().state.subscribe()).map(|state| Ok(state.into()));
        let (answers, answered) = tokio::sync::mpsc::channel(1);
        let service = Self(Arc::clone(&self.0));
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let wire::WatchRequest {
                    update,
                    frame,
                    availability,
                    ..
                } = request;
                if let Some(availability) = availability {
                    service.world().called(Call::Reports(availability.try_into().unwrap()));
                    continue;
                }
                let pushes = service.world().pushes;
                let reply = match pushes {
                    true => service.take(update.unwrap(), &frame),
                    false => wire::UpdateReply::default(),
                };
                let message = wire::RoundState {
                    reply: Some(reply),
                    ..wire::RoundState::default()
                };
                let _ = answers.send(Ok(message)).await;
            }
        });
        Ok(Response::new(Box::pin(states.merge(ReceiverStream::new(answered)))))
    }

    async fn fetch_base(&self, _: Request<wire::BaseRequest>) -> Answer<Self::FetchBaseStream> {
        Err(Status::failed_precondition("this run has no base"))
    }

    async fn fetch(&self, request: Request<wire::FetchRequest>) -> Answer<Self::FetchStream> {
        let FetchRequest { held, want, .. } = request.into_inner().try_into()?;
        let mut world = self.world();
        world.called(Call::Fetch { held, want });
        let (header, frames) = world.fetched(held, want);
        let header = wire::ModelChunk {
            part: Some(model_chunk::Part::Header((&header).into())),
        };
        // Chunks need not end at frame boundaries.
        let chunks: Vec<_> = frames.concat().chunks(CHUNK.min(100)).map(<[u8]>::to_vec).collect();
        let chunks = chunks.into_iter().map(|data| wire::ModelChunk {
            part: Some(model_chunk::Part::Data(data.into())),
        });
        let all: Vec<_> = std::iter::once(header).chain(chunks).map(Ok).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(all))))
    }

    async fn offer(&self, request: Request<wire::UpdateHeader>) -> Answer<wire::UpdateReply> {
        let header = UpdateHeader::try_from(request.into_inner())?;
        self.world().called(Call::Offer { round: header.id.round });
        Ok(Response::new(self.verdict(header.id.round, header.id.digest).into()))
    }

    async fn submit(&self, request: Request<Streaming<wire::UpdateChunk>>) -> Answer<wire::UpdateReply> {
        let mut stream = request.into_inner();
        let first = stream.message().await?.and_then(|chunk| chunk.part);
        let Some(update_chunk::Part::Header(header)) = first else {
            panic!("an upload begins with its header")
        };
        let header = UpdateHeader::try_from(header)?;
        let (round, digest) = (header.id.round, header.id.digest);
        let fault = {
            let mut world = self.world();
            world.headers.push(header.clone());
            world.called(Call::Submit {
                round,
                offset: header.offset,
            });
            world.faults.pop_front()
        };
        let mut bytes = self.world().partial.get(&digest.0).cloned().unwrap_or_default();
        assert_eq!(bytes.len() as u64, header.offset);
        if fault == Some(Fault::Displace) {
            return Err(Status::aborted("a newer upload of this client has taken over"));
        }
        if let Some(Fault::Refuse(why)) = fault {
            let mut world = self.world();
            world.refused.push(digest);
            if why == Refusal::NotSelected {
                // The client was replaced, then asked again.
                world.attempt += 1;
                world.publish();
            }
            drop(world);
            return Ok(Response::new(
                UpdateReply::Refused {
                    why,
                    message: "refused by the test".into(),
                }
                .into(),
            ));
        }
        while let Some(chunk) = stream.message().await? {
            let Some(update_chunk::Part::Data(data)) = chunk.part else {
                panic!("data follows the header")
            };
            bytes.extend_from_slice(&data);
            if let Some(Fault::CutAfter(len) | Fault::HangAfter(len)) = fault {
                bytes.truncate(len);
                self.world().partial.insert(digest.0, bytes);
                if matches!(fault, Some(Fault::HangAfter(_))) {
                    self.world().called(Call::Taken);
                    std::future::pending::<()>().await;
                }
                return Err(Status::unavailable("the server is stopping"));
            }
        }
        assert_eq!(Digest::of(&bytes), digest);
        if let Some(report) = header.evaluation {
            let mut world = self.world();
            world.evaluations.push(report);
            world.evaluate = false;
        }
        self.world().accept(round, digest, bytes);
        match fault {
            Some(Fault::LoseReceipt) => {
                self.world().called(Call::Taken);
                Err(Status::unavailable("the receipt is lost"))
            }
            _ => Ok(Response::new(UpdateReply::Accepted.into())),
        }
    }

    async fn renew(&self, _: Request<wire::RenewRequest>) -> Result<Response<wire::RenewReply>, Status> {
        Err(Status::unimplemented("the scripted server renews no certificate"))
    }

    async fn probe(&self, _: Request<Streaming<wire::ProbeRequest>>) -> Answer<Self::ProbeStream> {
        Err(Status::unimplemented("the scripted server measures no connection"))
    }

    async fn leave(&self, request: Request<wire::LeaveRequest>) -> Answer<wire::LeaveReply> {
        let request = fl_proto::LeaveRequest::try_from(request.into_inner())?;
        let mut world = self.world();
        world.called(Call::Leave(request.departure));
        let last = world.versions.len() as u64 - 1;
        if world.phase == Phase::Evaluating && request.departure == Departure::Evaluation(last) {
            (world.phase, world.evaluate) = (Phase::Done, false);
            world.publish();
        }
        Ok(Response::new(wire::LeaveReply {}))
    }

    async fn evaluate(&self, request: Request<wire::EvaluationReport>) -> Answer<wire::EvaluationReply> {
        let report = EvaluationReport::try_from(request.into_inner())?;
        let hangs = {
            let mut world = self.world();
            world.called(Call::Evaluate {
                version: report.version,
            });
            world.evaluations.push(report.clone());
            world.evaluate = false;
            if world.phase == Phase::Evaluating {
                world.phase = Phase::Done;
            }
            let hangs = world.hang_evaluating.take_if(|version| *version == report.version);
            world.publish();
            hangs
        };
        if hangs.is_some() {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(wire::EvaluationReply { counted: true }))
    }
}
