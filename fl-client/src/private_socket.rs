//! A listening socket for its owner only, whose file is removed at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fl_proto::listen_private;
use tokio::net::{UnixListener, UnixStream};

#[derive(Debug)]
pub(crate) struct PrivateSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl PrivateSocket {
    /// Listens at `path`, in place of a socket that a killed client has left.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            listener: UnixListener::from_std(listen_private(path)?)?,
        })
    }

    /// The next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // Too many open files, or a peer that is gone already.
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "nothing can connect; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
