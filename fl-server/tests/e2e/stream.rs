//! Small updates and model updates on the stream of `Watch`.

use std::collections::VecDeque;

use fl_compress::{Digest, Frame};
use fl_proto::{EvaluationReport, MAX_PUSH, Phase, RoundState, UpdateHeader, UpdateReply, wire};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::support::*;

/// Both sides of a watch stream.
struct Stream {
    updates: mpsc::Sender<wire::WatchRequest>,
    messages: Streaming<wire::RoundState>,
    /// States and answers that came while a test waited for the other.
    states: VecDeque<RoundState>,
    answers: VecDeque<wire::UpdateReply>,
}

impl Stream {
    async fn open(hand: &mut TestClient) -> Self {
        let first = wire::WatchRequest {
            run: "test".to_owned(),
            ..wire::WatchRequest::default()
        };
        let (updates, rest) = mpsc::channel(1);
        let requests = tokio_stream::once(first).chain(ReceiverStream::new(rest));
        Self {
            updates,
            messages: hand.calls.watch(requests).await.unwrap().into_inner(),
            states: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    async fn send(&self, header: &UpdateHeader, frame: &[u8]) {
        let request = wire::WatchRequest {
            update: Some(header.into()),
            frame: frame.to_vec().into(),
            ..wire::WatchRequest::default()
        };
        self.updates.send(request).await.unwrap();
    }

    async fn read(&mut self) {
        let message = self.messages.message().await.unwrap().expect("the stream went on");
        if let Some(reply) = message.reply {
            return self.answers.push_back(reply);
        }
        let state = RoundState::try_from(message).unwrap();
        if state.phase != Phase::Waiting {
            self.states.push_back(state);
        }
    }

    /// The answer to an update.
    async fn answer(&mut self) -> wire::UpdateReply {
        loop {
            match self.answers.pop_front() {
                Some(answer) => return answer,
                None => self.read().await,
            }
        }
    }

    /// The next state in which the run has begun.
    async fn state(&mut self) -> RoundState {
        loop {
            match self.states.pop_front() {
                Some(state) => return state,
                None => self.read().await,
            }
        }
    }
}

async fn run(fed: &Fed, rounds: u64) -> (Server, TestClient, Stream) {
    let one = Run::rounds(rounds).clients(1).evaluate().compression(SPARSE);
    let server = fed.start(&one).await;
    let mut hand = fed.clients(&server).await.remove(0);
    let stream = Stream::open(&mut hand).await;
    (server, hand, stream)
}

fn report(hand: &TestClient, version: u64) -> EvaluationReport {
    EvaluationReport {
        run: hand.run.as_ref().unwrap().run.clone(),
        version,
        examples: 20,
        loss: 0.25,
        correct: Some(15.0),
        language: false,
        metrics: Default::default(),
    }
}

#[tokio::test]
async fn rounds_take_no_call_and_the_ledger_is_the_socket() {
    let fed = Fed::new();
    let (server, mut hand, mut stream) = run(&fed, 4).await;
    let mut frames = 0;
    for round in 1..=4 {
        let state = stream.state().await;
        assert_eq!(state.phase, Phase::Training);
        assert_eq!(state.round, round);
        assert_eq!(state.version, round - 1);
        // The first model is fetched, and no model update leads to it.
        assert_eq!(state.step.is_empty(), round == 1);
        match round {
            1 => drop(hand.try_update_model(0).await.unwrap()),
            _ => {
                let layout = &hand.run.as_ref().unwrap().layout;
                let step = Frame::parse(&state.step, layout).unwrap();
                step.accumulate(1.0, &mut hand.model).unwrap();
            }
        }
        assert_eq!(state.model, Digest::of_f32(&hand.model));
        let frame = hand.encode(round);
        frames += frame.len() as u64;
        let header = UpdateHeader {
            evaluation: (round > 1).then(|| report(&hand, round - 1)),
            ..hand.header(round, &frame)
        };
        stream.send(&header, &frame).await;
        assert_eq!(UpdateReply::try_from(stream.answer().await), Ok(UpdateReply::Accepted));
    }
    let last = stream.state().await;
    assert_eq!(last.phase, Phase::Evaluating);
    assert!(last.evaluate);
    assert!(!last.step.is_empty());
    assert!(hand.try_evaluate(4).await.unwrap());
    assert_eq!(stream.state().await.phase, Phase::Done);
    assert!(
        stream.messages.message().await.unwrap().is_none(),
        "the stream ends with the run"
    );
    drop((hand, stream));
    let outcome = server.end().await;
    let ledger = fed.ledger();
    let total = ledger.total();
    assert!(ledger.is_balanced());
    assert_eq!((total.socket_up, total.socket_down), outcome.socket);
    assert_eq!((total.update, total.waste()), (frames, 0));
    assert!(total.snapshot > 0 && total.steps > 0 && total.evaluation > 0);
    for round in 2..=3 {
        let flow = ledger.rounds()[&round];
        let fixed = flow.socket() - flow.frames_up() - flow.frames_down();
        assert!(fixed <= 300, "round {round}: {fixed} bytes beside the frames");
        assert!(flow.evaluation > 0, "round {round}");
    }
}

#[tokio::test]
async fn an_update_is_counted_once_however_often_it_comes_on_the_stream() {
    let fed = Fed::new();
    let (server, mut hand, mut stream) = run(&fed, 2).await;
    stream.state().await;
    hand.try_update_model(0).await.unwrap();
    let frame = hand.encode(1);
    let header = hand.header(1, &frame);
    for _ in 0..2 {
        stream.send(&header, &frame).await;
    }
    for _ in 0..2 {
        assert_eq!(UpdateReply::try_from(stream.answer().await), Ok(UpdateReply::Accepted));
    }
    drop((hand, stream));
    server.stop().await;
    let total = fed.ledger().total();
    assert_eq!((total.update, total.retries), (frame.len() as u64, 1));
}

#[tokio::test]
async fn what_is_no_whole_small_update_has_no_answer_and_the_stream_goes_on() {
    let fed = Fed::new();
    let (server, mut hand, mut stream) = run(&fed, 1).await;
    stream.state().await;
    hand.try_update_model(0).await.unwrap();
    let frame = hand.encode(1);
    let header = hand.header(1, &frame);
    let long = vec![0; MAX_PUSH as usize + 1];
    let of = |len: usize, offset: u64| UpdateHeader {
        len: len as u64,
        offset,
        ..header.clone()
    };
    for (header, frame) in [
        (of(frame.len() + 1, 0), frame.as_slice()),
        (of(frame.len(), 1), &frame),
        (of(long.len(), 0), &long),
        (of(0, 0), &[]),
    ] {
        stream.send(&header, frame).await;
        assert_eq!(stream.answer().await, wire::UpdateReply::default());
    }
    stream.updates.send(wire::WatchRequest::default()).await.unwrap();
    assert_eq!(stream.answer().await, wire::UpdateReply::default());
    let noise = vec![7; frame.len()];
    let broken = UpdateHeader {
        id: fl_proto::UpdateId {
            digest: Digest::of(&noise),
            ..header.id.clone()
        },
        ..header.clone()
    };
    stream.send(&broken, &noise).await;
    let refused = UpdateReply::try_from(stream.answer().await).unwrap();
    assert!(matches!(refused, UpdateReply::Refused { .. }), "{refused:?}");
    // An upload that broke off goes on by a call.
    let half = frame.len() / 2;
    let parts = vec![header_chunk(&header), data_chunk(&frame[..half])];
    let offset = half as u64;
    assert_eq!(hand.submit_parts(parts).await.unwrap(), UpdateReply::Wanted { offset });
    stream.send(&header, &frame).await;
    assert_eq!(
        UpdateReply::try_from(stream.answer().await),
        Ok(UpdateReply::Wanted { offset })
    );
    drop((hand, stream));
    server.stop().await;
}

#[tokio::test]
async fn nothing_counts_that_a_revoked_client_sends_on_a_stream_it_opened_before() {
    let fed = Fed::new();
    let (server, mut hand, mut stream) = run(&fed, 2).await;
    stream.state().await;
    hand.try_update_model(0).await.unwrap();
    let frame = hand.encode(1);
    let counted = frame.len() as u64;
    stream.send(&hand.header(1, &frame), &frame).await;
    assert_eq!(UpdateReply::try_from(stream.answer().await), Ok(UpdateReply::Accepted));
    assert_eq!(stream.state().await.round, 2);
    hand.try_update_model(1).await.unwrap();
    std::fs::write(fed.dir.path().join("revoked"), "anna\n").unwrap();
    let frame = hand.encode(2);
    let header = UpdateHeader {
        evaluation: Some(report(&hand, 1)),
        ..hand.header(2, &frame)
    };
    stream.send(&header, &frame).await;
    // Without an answer, or ended by the check of idle watches, which may come first.
    let status = loop {
        match stream.messages.message().await {
            Ok(Some(message)) => assert_eq!(message.reply, Some(wire::UpdateReply::default())),
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    drop((hand, stream));
    server.stop().await;
    let total = fed.ledger().total();
    assert_eq!((total.update, total.evaluation), (counted, 0));
}
