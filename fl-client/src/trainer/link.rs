//! The two directions of messages, over pipes or a socket. Neither blocks the other: each has its own task.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::message::{FromTrainer, MAX_MESSAGE, ToTrainer};

/// Messages that wait for a trainer to read them. At most `start`, `join`, a request, `stop` and `bye` are under way.
const MAX_QUEUED: usize = 8;

#[derive(Debug)]
pub(super) struct Link {
    out: Option<mpsc::Sender<Vec<u8>>>,
    messages: mpsc::Receiver<anyhow::Result<FromTrainer>>,
    tasks: [AbortHandle; 2],
}

impl Link {
    /// Starts the tasks of both directions; they end with their streams or when the link is dropped.
    pub(super) fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (out, queued) = mpsc::channel(MAX_QUEUED);
        let (read, messages) = mpsc::channel(MAX_QUEUED);
        let tasks = [
            tokio::spawn(write(writer, queued)),
            tokio::spawn(read_lines(reader, read)),
        ];
        Self {
            out: Some(out),
            messages,
            tasks: tasks.map(|task| task.abort_handle()),
        }
    }

    /// Queues a message. A trainer that does not read is noticed by its silence, and one that is gone by the end of its
    /// messages.
    pub(super) fn send(&self, message: &ToTrainer<'_>) {
        if let Some(out) = &self.out {
            let _ = out.try_send(message.to_line());
        }
    }

    pub(super) fn close(&mut self) {
        self.out = None;
    }

    /// The next message; `None` at the end of the stream. An error is a line that is not a message; nothing follows it.
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<anyhow::Result<FromTrainer>> {
        self.messages.recv().await
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut queued: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = queued.recv().await {
        // The reader notices a trainer that is gone.
        if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

async fn read_lines(reader: impl AsyncRead + Unpin, read: mpsc::Sender<anyhow::Result<FromTrainer>>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(MAX_MESSAGE as u64 + 1);
        let message = match limited.read_until(b'\n', &mut line).await {
            Ok(_) if line.len() > MAX_MESSAGE => Err(anyhow::anyhow!("a line is longer than {MAX_MESSAGE} bytes")),
            // The end of the stream, or a part of a message before it.
            Ok(_) if line.last() != Some(&b'\n') => return,
            Err(_) => return,
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => FromTrainer::parse(&line),
        };
        let last = message.is_err();
        if read.send(message).await.is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_read_line_by_line_and_nothing_after_a_line_that_is_none() {
        let text = b"{\"type\":\"progress\",\"done\":1}\n\n{\"type\":\"bye\"}\nnonsense\n{\"type\":\"bye\"}\n";
        let mut link = Link::new(&text[..], tokio::io::sink());
        let first = FromTrainer::Progress { done: 1, total: 0 };
        assert_eq!(link.next().await.unwrap().unwrap(), first);
        assert_eq!(link.next().await.unwrap().unwrap(), FromTrainer::Bye);
        assert!(link.next().await.unwrap().is_err());
        assert!(link.next().await.is_none());
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused_within_a_bound_and_a_partial_one_is_the_end() {
        let mut endless = Link::new(tokio::io::repeat(b'x'), tokio::io::sink());
        let why = endless.next().await.unwrap().unwrap_err().to_string();
        assert!(why.contains("longer than 16777216"), "{why}");
        let mut partial = Link::new(&b"{\"type\":\"by"[..], tokio::io::sink());
        assert!(partial.next().await.is_none());
    }

    #[tokio::test]
    async fn a_trainer_that_does_not_read_blocks_nobody() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let (reader, writer) = tokio::io::split(ours);
        let link = Link::new(reader, writer);
        for _ in 0..100 {
            link.send(&ToTrainer::Stop);
        }
    }
}
