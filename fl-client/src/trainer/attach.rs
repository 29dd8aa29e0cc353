//! The socket at which a trainer connects that the client did not start: a notebook or a debugger.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fl_proto::{connect_private, make_private_folder};
use tokio::net::UnixStream;

use super::link::Link;
use super::message::ToTrainer;
use crate::private_socket::PrivateSocket;

/// Listens at `path`, in place of a socket that a killed client has left.
pub(super) fn listen(path: &Path) -> anyhow::Result<PrivateSocket> {
    let context = || format!("cannot listen on {}", path.display());
    if let Ok(found) = path.symlink_metadata() {
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
    let socket = PrivateSocket::listen(path).with_context(context)?;
    let shown = path.display();
    tracing::info!(
        "a trainer may attach: start its script or notebook with `fl.attach(\"{shown}\")` before `fl.rounds`"
    );
    Ok(socket)
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
    use std::fs;

    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn a_folder_that_exists_keeps_its_permissions_and_a_new_one_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let _socket = listen(&dir.path().join("a.sock")).unwrap();
        assert_eq!(mode(dir.path()), 0o755);
        let new = dir.path().join("new");
        let _other = listen(&new.join("b.sock")).unwrap();
        assert_eq!(mode(&new), 0o700);
    }
}
