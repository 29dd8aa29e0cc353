//! Measures uploads as the server sees them: what clients claim about their time is not used.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use fl_proto::{ClientId, Meter, wire};
use tokio::time::Instant;

use crate::lock::lock;
use crate::state_machine::Transfer;

/// When the clients of the open round were sent its task. Only measurements use it.
#[derive(Debug, Default)]
pub(crate) struct HandedOut(Mutex<BTreeMap<ClientId, (u64, Instant)>>);

impl HandedOut {
    /// `client` was sent `message`. A task that is sent again, after a break, was handed out the first time.
    pub(super) fn told(&self, client: &ClientId, message: &wire::RoundState) {
        if !message.selected || message.phase() != wire::Phase::Training || !message.accepted.is_empty() {
            return;
        }
        let mut tasks = lock(&self.0);
        let task = tasks.get(client).filter(|(round, _)| *round == message.round);
        if task.is_none() {
            tasks.insert(client.clone(), (message.round, Instant::now()));
        }
    }

    /// When `client` was sent the task of `round`.
    pub(super) fn at(&self, client: &ClientId, round: u64) -> Option<Instant> {
        let tasks = lock(&self.0);
        tasks.get(client).filter(|(of, _)| *of == round).map(|(_, at)| *at)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct UploadStart {
    /// When its first bytes were read.
    at: Instant,
    /// Bytes that the connection had read then.
    read: u64,
}

impl UploadStart {
    /// An upload of which the first message has arrived.
    pub(super) fn now(meter: &Meter) -> Self {
        Self {
            at: Instant::now(),
            read: meter.read(),
        }
    }

    /// An upload that has arrived as one message with a frame of `frame` bytes.
    pub(super) fn of_message(meter: &Meter, frame: u64) -> Option<Self> {
        let (read, at) = meter.read_after(meter.read().saturating_sub(frame))?;
        Some(Self { at, read })
    }

    /// The upload, once it has arrived. `handed_out`: when the client was sent the task; `excused`: for how long the server did
    /// not read. `None` if it tells nothing about the link ([`Transfer::shows_link`]).
    pub(super) fn end(self, meter: &Meter, handed_out: Instant, excused: Duration) -> Option<Transfer> {
        let (read, at) = meter.last_read()?;
        let bytes = read.saturating_sub(self.read);
        let taken = at.saturating_duration_since(self.at).saturating_sub(excused);
        let transfer = Transfer {
            wait: micros(self.at.saturating_duration_since(handed_out)),
            bytes,
            micros: micros(taken),
        };
        Some(transfer).filter(Transfer::shows_link)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_proto::Metered;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::advance;

    use super::*;

    /// Passes `bytes` over the connection, in 100 ms.
    async fn pass(far: &mut DuplexStream, near: &mut Metered<DuplexStream>, bytes: usize) {
        advance(Duration::from_millis(100)).await;
        far.write_all(&vec![0; bytes]).await.unwrap();
        near.read_exact(&mut vec![0; bytes]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_of_one_message_is_measured_from_its_first_read_to_its_last() {
        let meter = Arc::new(Meter::default());
        let (mut far, near) = duplex(64 * 1024);
        let mut near = Metered::new(near, Arc::clone(&meter));
        let handed_out = Instant::now();
        // Something else, and then an upload of 3,100 bytes with a frame of 3,000.
        pass(&mut far, &mut near, 500).await;
        advance(Duration::from_secs(2)).await;
        for bytes in [1_000, 1_000, 1_100] {
            pass(&mut far, &mut near, bytes).await;
        }
        let begun = UploadStart::of_message(&meter, 3_000).unwrap();
        advance(Duration::from_secs(9)).await;
        let transfer = begun.end(&meter, handed_out, Duration::ZERO).unwrap();
        assert_eq!(
            (transfer.wait, transfer.bytes, transfer.micros),
            (2_200_000, 2_100, 200_000)
        );
        let excused = begun.end(&meter, handed_out, Duration::from_millis(50)).unwrap();
        assert_eq!(excused.micros, 150_000);
        let busy = Duration::from_millis(181);
        assert_eq!(
            begun.end(&meter, handed_out, busy),
            None,
            "19 ms of few bytes tell nothing"
        );
        pass(&mut far, &mut near, 4_000).await;
        let at_once = UploadStart::of_message(&meter, 3_900).unwrap();
        assert_eq!(at_once.end(&meter, handed_out, Duration::ZERO), None);
    }

    #[test]
    fn what_the_server_took_to_read_is_not_taken_for_the_link() {
        let shown = [(16_384, 1_000), (1, 20_000), (u64::MAX, u64::MAX)];
        let hidden = [(16_383, 19_999), (u64::MAX, 999), (0, u64::MAX)];
        let wait = 0;
        for (bytes, micros) in shown {
            assert!(Transfer { wait, bytes, micros }.shows_link());
        }
        for (bytes, micros) in hidden {
            assert!(!Transfer { wait, bytes, micros }.shows_link());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_sent_again_was_handed_out_the_first_time() {
        let tasks = HandedOut::default();
        let client: ClientId = "a".parse().unwrap();
        let message = |round, selected| wire::RoundState {
            round,
            selected,
            phase: wire::Phase::Training.into(),
            ..wire::RoundState::default()
        };
        tasks.told(&client, &message(1, false));
        assert_eq!(tasks.at(&client, 1), None);
        let first = Instant::now();
        tasks.told(&client, &message(1, true));
        advance(Duration::from_secs(1)).await;
        tasks.told(&client, &message(1, true));
        assert_eq!(tasks.at(&client, 1), Some(first));
        tasks.told(&client, &message(2, true));
        assert_eq!(
            (tasks.at(&client, 1), tasks.at(&client, 2)),
            (None, Some(Instant::now()))
        );
    }
}
