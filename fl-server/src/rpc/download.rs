//! A download: blobs in chunks, no faster than the client reads them. Short blobs are read once for all clients that read the same
//! one; of a long blob, only a chunk is in memory.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use fl_compress::Digest;
use fl_proto::CHUNK;
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::context::Peer;
use super::pace::{Pace, TooSlow};
use crate::accounting::transfers::DownloadAccount;
use crate::rpc::context::{Service, internal, unable};
use crate::rpc::shared::MAX_SHARED;
use crate::rpc::transfers::LAPSE;

/// A download in progress, in messages of type `M`.
pub(super) struct Download<'a, M> {
    service: &'a Arc<Service>,
    /// Bytes of all its blobs.
    bytes: u64,
    chunks: &'a mpsc::Sender<Result<M, Status>>,
    pace: Pace,
    /// Held while the client reads.
    place: Option<SemaphorePermit<'a>>,
}

impl<'a, M> Download<'a, M> {
    /// Begins a download of `bytes` to the receiver of `chunks`, which should hold few messages.
    pub(super) fn begin(
        service: &'a Arc<Service>,
        peer: &Peer,
        bytes: u64,
        chunks: &'a mpsc::Sender<Result<M, Status>>,
    ) -> Self {
        Self {
            service,
            bytes,
            chunks,
            pace: Pace::down(&service.tuning(), &peer.meter),
            place: None,
        }
    }

    /// Sends a range of a blob. `message`: the message of a chunk.
    ///
    /// # Errors
    /// The status of the call: the blob cannot be read or is too short, or the client is gone or too slow.
    pub(super) async fn send_blob(
        &mut self,
        blob: &Digest,
        range: Range<u64>,
        account: &DownloadAccount,
        message: impl Fn(Bytes) -> M,
    ) -> Result<(), Status> {
        self.take_place().await?;
        if range.end <= MAX_SHARED {
            // A blob that is damaged is sent as it is: the receiver checks its digest, and names it.
            let _ = self.service.frame(blob).await;
        }
        let mut file = None;
        let mut at = range.start;
        while at < range.end {
            self.take_place().await?;
            let part = at..range.end.min(at + CHUNK as u64);
            at = part.end;
            let len = part.end - part.start;
            let piece = match self.service.shared_frame.piece(blob, &part) {
                Some(piece) => piece,
                None => self.read(blob, &mut file, part).await?,
            };
            account.chunk(len);
            self.give_or_release(message(piece)).await?;
            self.pace.moved(len);
        }
        Ok(())
    }

    /// A part of a blob from its file, which is opened if it is not.
    async fn read(
        &self,
        blob: &Digest,
        file: &mut Option<(Arc<File>, PathBuf)>,
        part: Range<u64>,
    ) -> Result<Bytes, Status> {
        let (file, path) = match file {
            Some(opened) => opened,
            None => {
                let (opened, path) = self.service.blobs.file(blob).map_err(|e| unable(&e))?;
                file.insert((Arc::new(opened), path))
            }
        };
        let file = Arc::clone(file);
        let piece = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; (part.end - part.start) as usize];
            file.read_exact_at(&mut piece, part.start).map(|()| Bytes::from(piece))
        })
        .await
        .map_err(internal)?;
        piece.map_err(|e| internal(format!("{} is shorter than recorded: {e}", path.display())))
    }

    /// Passes one message to the connection, or ends the call of a client that reads too slowly.
    pub(super) async fn give(&mut self, message: M) -> Result<(), Status> {
        give(&mut self.pace, self.chunks, message).await
    }

    /// As [`Download::give`]. Releases the permit if the client is slow.
    async fn give_or_release(&mut self, message: M) -> Result<(), Status> {
        let mut giving = pin!(give(&mut self.pace, self.chunks, message));
        match timeout(LAPSE, &mut giving).await {
            Ok(given) => given,
            Err(_) => {
                self.place = None;
                giving.await
            }
        }
    }

    /// Acquires a permit, unless one is held.
    async fn take_place(&mut self) -> Result<(), Status> {
        if self.place.is_none() {
            let begun = Instant::now();
            self.place = Some(self.service.limits.downloads.place(self.bytes).await?);
            self.pace.excuse(begun.elapsed());
        }
        Ok(())
    }
}

/// Ends a call with an error, behind what the client has not read yet.
pub(super) async fn fail<M>(chunks: &mpsc::Sender<Result<M, Status>>, status: Status) {
    // A client that reads nothing more sees the end of the stream.
    let _ = timeout(LAPSE, chunks.send(Err(status))).await;
}

async fn give<M>(pace: &mut Pace, chunks: &mpsc::Sender<Result<M, Status>>, message: M) -> Result<(), Status> {
    match pace.wait(chunks.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Status::cancelled("the client is gone")),
        Err(TooSlow) => Err(Status::deadline_exceeded(
            "the client reads more slowly than this server waits for; fetch again",
        )),
    }
}
