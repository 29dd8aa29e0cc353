//! The socket at which a trainer connects that the client did not start: a notebook or a debugger.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use fl_proto::{connect_private, listen_private, make_private_folder};
use tokio::net::{UnixListener, UnixStream};

use super::link::Link;
use super::message::ToTrainer;

/// A socket for its owner only, removed at the end.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Listens at `path`, in place of a socket that a killed client has left.
    pub(super) fn listen(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot listen on {}", path.display());
        if let Ok(found) = fs::symlink_metadata(path) {
            ensure!(
                found.file_type().is_socket(),
                "{}: is not a socket and will not be replaced",
                path.display()
            );
            let is_free = connect_private(path).with_context(context)?.is_none();
            ensure!(is_free, "a client listens at {}: stop it first", path.display());
        }
        // A folder that exists, such as /tmp, keeps its permissions.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        folder.map_or(Ok(()), make_private_folder).with_context(context)?;
        let listener = listen_private(path)
            .and_then(UnixListener::from_std)
            .with_context(context)?;
        let shown = path.display();
        tracing::info!(
            "a trainer may attach: start its script or notebook with `fl.attach(\"{shown}\")` before `fl.rounds`"
        );
        Ok(Self {
            path: path.to_owned(),
            listener,
        })
    }

    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                // Too many open files, or a peer that is gone already.
                Err(error) => {
                    tracing::warn!(%error, "a trainer cannot attach");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

pub(super) fn link(stream: UnixStream) -> Link {
    let (reader, writer) = stream.into_split();
    Link::new(reader, writer)
}

/// Tells a second trainer that there is one already.
pub(super) async fn turn_away(stream: UnixStream) {
    tracing::warn!("a second trainer tried to attach; one at a time may");
    let _ = stream.writable().await;
    // Fits into the buffer of a new socket.
    let message = Some("another trainer is attached to this client; end it first");
    let _ = stream.try_write(&ToTrainer::Bye { message }.to_line());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn a_folder_that_exists_keeps_its_permissions_and_a_new_one_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let _socket = Socket::listen(&dir.path().join("a.sock")).unwrap();
        assert_eq!(mode(dir.path()), 0o755);
        let new = dir.path().join("new");
        let _other = Socket::listen(&new.join("b.sock")).unwrap();
        assert_eq!(mode(&new), 0o700);
    }
}
